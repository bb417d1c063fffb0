"""From WAL objects to table files: what to compact, how, and in which order it counts."""
