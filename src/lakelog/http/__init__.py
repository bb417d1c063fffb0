"""The HTTP port: health, metrics and a look inside, for people and for probes."""
