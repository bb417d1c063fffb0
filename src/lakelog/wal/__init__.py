"""WAL objects: their ids and keys, their bytes, and the runs of batches inside them. Pure."""
