"""The state of a domain: what its records add up to. Pure."""
