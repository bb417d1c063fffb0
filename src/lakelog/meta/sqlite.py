"""The embedded metadata store: one SQLite file, several processes."""
