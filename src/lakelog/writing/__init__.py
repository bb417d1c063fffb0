"""Rows to records: WAL objects put by whoever has the rows, made visible by one commit."""
