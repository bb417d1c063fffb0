"""Options of a broker: TOML and environment in, frozen values out."""
