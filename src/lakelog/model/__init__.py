"""The nouns everyone shares: ids, half-open ranges, error codes, named failures. Pure."""
