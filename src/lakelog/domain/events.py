"""The kinds of record of a domain log and their bytes. Pure."""
