"""Configuration: a TOML file, the environment and flags become frozen options.

Each module owns its options class; this package assembles them. An unknown key is an error with a
suggestion, all errors are told at once, and every value knows where it came from.
"""
