"""Names of the keys and logs, in one place. Pure."""
