"""The envelope of a domain record: who wrote it, and its checksum. Pure."""
