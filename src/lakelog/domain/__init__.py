"""The domain log: every fact about a stream is a record, and `apply` says what it means."""
