"""Lakelog: a Kafka-compatible log in object storage, in which every topic is a table.

`lakelog.read` and `lakelog.open` give topics as Arrow. They are found by name when they are first
used: everybody imports this module, and only who reads needs what they need.
"""

import importlib

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name in ("open", "read"):
        return getattr(importlib.import_module("lakelog.reading.read"), name)
    raise AttributeError(f"module 'lakelog' has no attribute {name!r}")
