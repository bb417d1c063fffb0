"""apply: what a record of the domain log means. Pure."""
