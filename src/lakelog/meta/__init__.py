"""The metadata store: a small ordered store of keys and logs behind one port."""
