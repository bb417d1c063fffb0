"""Which bytes of which objects answer a read. Pure."""
