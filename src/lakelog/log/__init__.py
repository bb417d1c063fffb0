"""The log: batches in, offsets out, records back, from the domain log and the object store."""
