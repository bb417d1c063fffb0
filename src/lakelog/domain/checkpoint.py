"""A domain state as canonical bytes. Pure."""
