"""Targets, rows and what is read back of batches."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from lakelog.index.messages import WriteTarget
from lakelog.lake.write.record_batches import RowFormat, StreamBatch
from lakelog.lake.write.write_options import RowColumns, checked_columns
from lakelog.records.columns import RecordColumns, decode_columns

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = {
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    "headers": ("array<struct<key:string,value:binary>>", HEADERS),
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
}

Row = tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]


def target(
    topic: str = "t",
    partitions: int = 4,
    *,
    max_message_bytes: int = 1_048_588,
    compression: str = "producer",
    log_append_time: bool = False,
    is_compacted: bool = False,
) -> WriteTarget:
    first = 100 * (1 + sum(map(ord, topic)))
    return WriteTarget(
        topic,
        topic.encode().ljust(16, b"."),
        tuple(range(first, first + partitions)),
        tuple(number % 2 for number in range(partitions)),
        max_message_bytes,
        compression,
        log_append_time,
        is_compacted,
    )


def rows_of(**columns: Sequence[object]) -> tuple[pa.RecordBatch, RowColumns]:
    """A batch with these columns, and where they are."""
    arrays = {name: pa.array(list(found), TYPES[name][1]) for name, found in columns.items()}
    kinds = [(name, TYPES[name][0]) for name in columns]
    topic = None if "topic" in columns else "t"
    return pa.RecordBatch.from_pydict(arrays), checked_columns(kinds, topic=topic)


def form(columns: RowColumns) -> RowFormat:
    return RowFormat(columns, "t" if columns.topic is None else None)


def decoded(built: StreamBatch) -> RecordColumns:
    return decode_columns(built.batch.data, decompressed_bytes_max=64 << 20)


def read_back(
    found: Sequence[StreamBatch], targets: Mapping[str, WriteTarget]
) -> dict[tuple[str, int], list[Row]]:
    """The records of every partition, in order."""
    places = {
        stream: (one.topic, partition)
        for one in targets.values()
        for partition, stream in enumerate(one.streams)
    }
    records: dict[tuple[str, int], list[Row]] = {}
    for one in found:
        topic, partition = places[one.stream]
        assert one.domain == targets[topic].domains[partition]
        columns = decoded(one)
        some = records.setdefault((topic, partition), [])
        for index in range(len(columns)):
            key, value = columns.key(index), columns.value(index)
            some.append(
                (
                    None if key is None else bytes(key),
                    None if value is None else bytes(value),
                    columns.headers(index),
                )
            )
    return records
