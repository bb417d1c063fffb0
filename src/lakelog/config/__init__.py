"""Configuration: a TOML file, the environment and flags become frozen options.

`options.Options` has a section for each part of a broker; each part owns its options class.
`load` reads file, environment and flags, and tells all errors at once; `stores` opens the stores
that URLs name. `keys` knows every key, Kafka's name for it, and how its value is read; an unknown
key is an error with a suggestion, and every value knows where it came from. `named_options` is for
users of libraries: the options of one read or write, and where the cluster is.
"""
