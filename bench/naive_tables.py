"""The peer of our tables: PyIceberg as one would use it at first, with a SQL catalog.

A loop consumes, and every second appends what came. It merges no manifests, expires no snapshot
and would append twice after a crash: it is the plain cost of the format in Python.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

APPEND_S = 1.0
SILENCE_S = 2.0
FIRST_S = 30.0
SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("value", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Seen:
    """The end offset of every partition of a table, and when it was seen."""

    topic: str
    seen_s: float
    vector: Mapping[int, int]
    made_s: float = 0.0
    """When the snapshot says that it was made."""


def open_table(folder: Path) -> Table:
    """Make a table in a catalog of its own."""
    folder.mkdir(parents=True)
    catalog = SqlCatalog(
        "naive",
        uri=f"sqlite:///{folder / 'catalog.db'}",
        warehouse=f"file://{folder / 'warehouse'}",
    )
    catalog.create_namespace("naive")
    return catalog.create_table("naive.rows", SCHEMA)


def append_again(folder: Path, count: int) -> list[float]:
    """Append one row so often; return the seconds of each."""
    table = open_table(folder)
    took = []
    for number in range(count):
        rows = pa.table([[0], [number], [b"value"]], schema=SCHEMA)
        began = time.perf_counter()
        table.append(rows)
        took.append(time.perf_counter() - began)
    return took


def append_loop(bootstrap: str, topic: str, partitions: int, folder: Path) -> list[Seen]:
    """Consume a topic and append every second, until nothing comes any more."""
    table = open_table(folder)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "naive", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, at, 0) for at in range(partitions)])
    seen: list[Seen] = []
    vector: dict[int, int] = {}
    heard_s = time.monotonic()
    while time.monotonic() - heard_s < (SILENCE_S if vector else FIRST_S):
        messages = gather(consumer, time.monotonic() + APPEND_S)
        if messages:
            heard_s = time.monotonic()
            rows = rows_of(messages)
            table.append(rows)
            for partition, offset in zip(
                rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True
            ):
                vector[partition] = max(offset + 1, vector.get(partition, 0))
            seen.append(Seen(topic, time.time(), dict(vector)))
    consumer.close()
    return seen


def gather(consumer: Consumer, until_s: float) -> list[Message]:
    """Return what comes until then."""
    messages: list[Message] = []
    while (left_s := until_s - time.monotonic()) > 0:
        messages += consumer.consume(10_000, timeout=min(left_s, 0.1))
    return [one for one in messages if one.error() is None]


def rows_of(messages: Sequence[Message]) -> pa.Table:
    """Return the rows of these records."""
    columns = [
        [one.partition() for one in messages],
        [one.offset() for one in messages],
        [one.value() for one in messages],
    ]
    return pa.table(columns, schema=SCHEMA)
