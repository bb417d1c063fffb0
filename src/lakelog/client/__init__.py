"""The ordered consumer: records of any Kafka as Arrow, in the order of their time.

`ConsumerManager` reads topics as record batches of `MESSAGE_SCHEMA`, from where each `SourceTopic`
says; whatever goes wrong is a `ClientFailure`. Names are loaded when they are first used: Arrow is
slow to import, and an extra.

Who does what, by the thread that does it:

- The caller's thread. `consumer.ConsumerManager` is the user's; each `poll` is a step of
  `core.ConsumerCore`: `reader.OrderedReader` takes events in, `watermark.Watermark` decides up to
  which key rows may go, `merge_buffer.MergeBuffer` merges them, `arrow_rows.MessageRows` builds the
  batch.
- The loop's thread. `consumer_loop.ConsumerLoop` finds offsets and starts the rest.
  `fetch_scheduler.FetchScheduler` plans (no I/O): which partitions to fetch next and how much, by
  time, memory and the reader's demand; each partition is a `fetch_slots.FetchSlot` there.
  `fetcher.Fetcher` sends what was planned and moves positions on.
  `metadata_refresh.MetadataRefresh` follows leaders, new partitions and topics that were recreated.
- The decoder's thread. `decoder.Decoder` checks and decodes answers into sorted runs.

What passes between them: a `PlannedFetch` from scheduler to fetcher, a `Slice` of an answer from
fetcher to decoder, events (`RowsArrived`, `PartitionAdded`, ...) through the `EventQueue` to the
reader, and the `MemoryAccount` back to the scheduler. One partition is a `PartitionState` on the
loop and a `ReleaseState` at the reader. `Snapshot` is the position of all, to go on from.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.client.consumer import ConsumerManager
    from lakelog.client.options import Metrics, Snapshot, SourceTopic
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
    "Metrics": "lakelog.client.options",
    "OffsetGone": "lakelog.kafka_client.failures",
    "Snapshot": "lakelog.client.options",
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
