"""Clients of any Kafka: connections, and records as Arrow in the order of their time.

`ConsumerManager` reads topics as record batches of `MESSAGE_SCHEMA`, from where each `SourceTopic`
says. Names are loaded when they are first used: Arrow is slow to import, and an extra.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.client.consumer import ConsumerManager
    from lakelog.client.metrics import Metrics
    from lakelog.client.position import Snapshot
    from lakelog.client.source_topic import SourceTopic

    MESSAGE_SCHEMA: pa.Schema
    PARTITION_STATE_SCHEMA: pa.Schema

__all__ = [
    "MESSAGE_SCHEMA",
    "PARTITION_STATE_SCHEMA",
    "ConsumerManager",
    "Metrics",
    "Snapshot",
    "SourceTopic",
]

_MODULES = {
    "ConsumerManager": "consumer",
    "Metrics": "metrics",
    "Snapshot": "position",
    "SourceTopic": "source_topic",
}
_SCHEMAS = {
    "MESSAGE_SCHEMA": "message_schema",
    "PARTITION_STATE_SCHEMA": "partition_state_schema",
}


def __getattr__(name: str) -> object:
    if name in _SCHEMAS:
        found = getattr(import_module("lakelog.client.rows"), _SCHEMAS[name])()
    elif name in _MODULES:
        found = getattr(import_module(f"lakelog.client.{_MODULES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found
