"""Clients of any Kafka: connections, and records as Arrow in the order of their time.

`ConsumerManager` reads topics as record batches of `MESSAGE_SCHEMA`, from where each `SourceTopic`
says; whatever goes wrong is a `ClientFailure`. Names are loaded when they are first used: Arrow is
slow to import, and an extra.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.client.consumer import ConsumerManager
    from lakelog.client.options import SourceTopic
    from lakelog.client.snapshot import Metrics, Snapshot
    from lakelog.kafka_client.failures import (
        AuthenticationFailed,
        BadConfig,
        BrokerError,
        ClientFailure,
        Closed,
        CorruptBatch,
        OffsetGone,
        TimedOut,
        UnknownTopic,
        Unreachable,
        Unsupported,
        Untrusted,
    )

    MESSAGE_SCHEMA: pa.Schema
    PARTITION_STATE_SCHEMA: pa.Schema

__all__ = [
    "MESSAGE_SCHEMA",
    "PARTITION_STATE_SCHEMA",
    "AuthenticationFailed",
    "BadConfig",
    "BrokerError",
    "ClientFailure",
    "Closed",
    "ConsumerManager",
    "CorruptBatch",
    "Metrics",
    "OffsetGone",
    "Snapshot",
    "SourceTopic",
    "TimedOut",
    "UnknownTopic",
    "Unreachable",
    "Unsupported",
    "Untrusted",
]

_MODULES = {
    "AuthenticationFailed": "lakelog.kafka_client.failures",
    "BadConfig": "lakelog.kafka_client.failures",
    "BrokerError": "lakelog.kafka_client.failures",
    "ClientFailure": "lakelog.kafka_client.failures",
    "Closed": "lakelog.kafka_client.failures",
    "ConsumerManager": "lakelog.client.consumer",
    "CorruptBatch": "lakelog.kafka_client.failures",
    "Metrics": "lakelog.client.snapshot",
    "OffsetGone": "lakelog.kafka_client.failures",
    "Snapshot": "lakelog.client.snapshot",
    "SourceTopic": "lakelog.client.options",
    "TimedOut": "lakelog.kafka_client.failures",
    "UnknownTopic": "lakelog.kafka_client.failures",
    "Unreachable": "lakelog.kafka_client.failures",
    "Unsupported": "lakelog.kafka_client.failures",
    "Untrusted": "lakelog.kafka_client.failures",
}
_SCHEMAS = {
    "MESSAGE_SCHEMA": "message_schema",
    "PARTITION_STATE_SCHEMA": "partition_state_schema",
}


def __getattr__(name: str) -> object:
    if name in _SCHEMAS:
        found = getattr(import_module("lakelog.client.arrow_rows"), _SCHEMAS[name])()
    elif name in _MODULES:
        found = getattr(import_module(_MODULES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found
