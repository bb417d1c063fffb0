"""The object store: immutable files by key behind one port."""
