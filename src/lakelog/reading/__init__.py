"""The index of a cluster, as a reader asks for it over HTTP: topics, bounds, ranges, entries."""
