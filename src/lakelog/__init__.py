"""Lakelog: a Kafka-compatible log in object storage, in which every topic is a table.

`lakelog.read` and `lakelog.open` give topics as Arrow, `lakelog.sql` what a query makes of them;
`lakelog.tables` leads from snapshots to offsets. They are found by name when they are first used:
everybody imports this module, and only who reads needs what they need.
"""

import importlib

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name in ("open", "read"):
        return getattr(importlib.import_module("lakelog.lake.read.arrow_reader"), name)
    if name == "sql":
        return importlib.import_module("lakelog.lake.sql.sql_query").query
    if name == "tables":
        return importlib.import_module("lakelog.tables")
    raise AttributeError(f"module 'lakelog' has no attribute {name!r}")
