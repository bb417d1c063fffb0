"""Which batches share the next WAL object. Pure."""
