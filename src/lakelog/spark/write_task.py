"""What a Spark task writes: its rows as WAL objects, which its message to the driver names.

Rules:

- A task only puts objects. What it put is seen by nobody before the driver commits it, so a task
  that fails, or runs twice, leaves no record behind.
- Small Arrow batches are gathered before they are cut by partition, or batches would be tiny.
- Records are made on Spark's thread while objects are put on the process's loop; both are bounded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import WriterCommitMessage

from lakelog.clock import Clock, SystemClock, SystemEntropy
from lakelog.config.connection import Connection
from lakelog.lake.write.commit_client import PlacedObject, Transaction, WriteClient, WriteTarget
from lakelog.lake.write.record_batches import RowFormat, StreamBatch, built_batches, topics_of
from lakelog.lake.write.wal_objects import ObjectWriter
from lakelog.records import kernels
from lakelog.spark.runtime import Runtime, runtime

if TYPE_CHECKING:
    import pyarrow as pa

GATHER_BYTES: Final = 16 << 20
"""Rows that are cut into batches at once."""

KERNEL_ROWS: Final = 20_000
KERNEL_BYTES: Final = 8 << 20
"""From so many rows or bytes on, loading the compiled kernels pays."""


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """What one task put, and under which transaction, if it knows."""

    transaction: Transaction | None
    placed: tuple[PlacedObject, ...]


def write_rows(
    batches: "Iterator[pa.RecordBatch]", form: RowFormat, connection: Connection
) -> tuple[PlacedObject, ...]:
    """Put all rows; raises `BadRow`, `Refused` and `Unavailable`, and then leaves nothing."""
    gathered = _gathered(batches)
    first = next(gathered, None)
    if first is None:
        return ()
    running = runtime()
    reached = running.reached(connection)
    client = WriteClient(reached.brokers)
    try:
        place = running.call(client.place())
        objects = running.source(reached).objects
        writer = ObjectWriter(objects, place, SystemClock(), SystemEntropy())
        maker = _Maker(running, client, form)
        try:
            for rows in chain((first,), gathered):
                running.call(writer.add(maker.built(rows)))
            return running.call(writer.finish())
        except BaseException:
            running.call(writer.discard())
            raise
    finally:
        running.call(client.close())


class _Maker:
    """Makes batches of rows; asks for each topic once."""

    def __init__(self, running: Runtime, client: WriteClient, form: RowFormat) -> None:
        self._running = running
        self._client = client
        self._form = form
        self._clock: Clock = SystemClock()
        self._targets: dict[str, WriteTarget] = {}
        self._rows = 0
        self._bytes = 0

    def built(self, rows: "pa.RecordBatch") -> list[StreamBatch]:
        """The batches of these rows."""
        missing = [name for name in topics_of(rows, self._form) if name not in self._targets]
        if missing:
            self._targets |= self._running.call(self._client.targets(missing))
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= KERNEL_ROWS or self._bytes >= KERNEL_BYTES:
            kernels.load()
        return list(built_batches(rows, self._form, self._targets, now_ms=self._clock.now_ms()))


def _gathered(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """The same rows in batches of about `GATHER_BYTES`, none empty."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            held_bytes += batch.nbytes
        if held_bytes >= GATHER_BYTES:
            yield from _joined(held)
            held, held_bytes = [], 0
    yield from _joined(held)


def _joined(held: "list[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa  # noqa: PLC0415 - only tasks with rows need it

    if len(held) < 2:
        return iter(held)
    return iter(pa.Table.from_batches(held).combine_chunks().to_batches())
