"""Writes rows to topics: `df.write.format("lakelog")` and `writeStream`, exactly once for streams.

Rules:

- Tasks put objects that nobody sees, so a task that fails, or runs twice, leaves no record behind;
  the driver's commit makes them visible, each domain's at once.
- A stream's batch is committed under its query's id and its number, so a batch that Spark repeats,
  because it went down between our commit and its own, is there once.
- A batch is committed under the name and number that the user gave, or else under those of the
  process that commits, so that at least no request to a broker that is repeated writes twice.
- Objects are deleted only where no commit can have been tried: Spark aborts a write also after a
  commit that failed, and what came of that one nobody knows.
- Writers are built in several processes and shipped with every task: they do no I/O and are small.
- In a task small Arrow batches are gathered before they are cut by partition, or batches would be
  tiny. Records are made on Spark's thread while objects are put on the process's loop; both are
  bounded.
"""

import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)

from lakelog.clock import Clock, SystemClock, SystemEntropy
from lakelog.config.named_options import BadOption, ClusterOptions
from lakelog.index.messages import WriteTarget
from lakelog.lake.write.commit_client import (
    PlacedObject,
    Transaction,
    TransactionResult,
    WriteClient,
)
from lakelog.lake.write.record_batches import RowFormat, StreamBatch, built_batches, topics_of
from lakelog.lake.write.wal_objects import ObjectWriter, delete_placed
from lakelog.lake.write.write_options import WriteRequest, checked_columns, parse_write
from lakelog.spark.runtime import Runtime, runtime

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

GATHER_BYTES: Final = 16 << 20
"""Rows that are cut into batches at once."""


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """What one task put, and under which transaction, if it knows."""

    transaction: Transaction | None
    placed: tuple[PlacedObject, ...]


def write_rows(
    batches: "Iterator[pa.RecordBatch]", form: RowFormat, connection: ClusterOptions
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

    def built(self, rows: "pa.RecordBatch") -> list[StreamBatch]:
        """The batches of these rows."""
        missing = [name for name in topics_of(rows, self._form) if name not in self._targets]
        if missing:
            self._targets |= self._running.call(self._client.targets(missing))
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


QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""What Spark tells the tasks of a stream about it."""

Messages: TypeAlias = Sequence[WriterCommitMessage | None]

_log: Final = logging.getLogger(__name__)
_noted: Final[set[str]] = set()
_processes: Final[dict[int, "_Process"]] = {}
_making: Final = threading.Lock()


def batch_writer(
    options: Mapping[str, str], schema: "StructType", *, overwrite: bool
) -> DataSourceWriter:
    """Writes once; raises `BadOption`."""
    if overwrite:
        raise BadOption(
            "mode",
            'mode("overwrite") is refused: a topic is a log, and what is in it stays until its'
            ' retention ends; write with mode("append"), or delete the topic and create it anew',
        )
    request = parse_write(options, streaming=False)
    return BatchWriter(_form(request, schema), request.connection, request.transaction)


def stream_writer(
    options: Mapping[str, str],
    schema: "StructType",
    *,
    overwrite: bool,
) -> DataSourceStreamWriter:
    """Writes every micro-batch once; raises `BadOption`.

    In complete mode, where Spark asks to overwrite, every result is appended, as Kafka's sink does.
    """
    request = parse_write(options, streaming=True)
    return StreamWriter(_form(request, schema), request.connection)


@dataclass(frozen=True)
class BatchWriter(DataSourceArrowWriter):
    """One job's rows, under the transaction that the user named, if any."""

    form: RowFormat
    connection: ClusterOptions
    transaction: Transaction | None

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskWritten:
        """Put the rows of one task."""
        return TaskWritten(self.transaction, write_rows(iterator, self.form, self.connection))

    def commit(self, messages: Messages) -> None:
        """Make all rows visible."""
        tasks = _written(messages)
        if self.transaction is not None:
            _commit(self.connection, self.transaction, tasks)
            return
        process = _process()
        with process.lock:
            process.version += 1
            transaction = Transaction(process.application, process.version)
            _commit(self.connection, transaction, tasks)

    def abort(self, messages: Messages) -> None:
        """Delete what was put, if no commit can have been tried."""
        _abort(self.connection, messages)


@dataclass(frozen=True)
class StreamWriter(DataSourceStreamArrowWriter):
    """The rows of a stream, each micro-batch under a transaction of its own."""

    form: RowFormat
    connection: ClusterOptions

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskWritten:
        """Put the rows of one task of a micro-batch."""
        return TaskWritten(_of_this_batch(), write_rows(iterator, self.form, self.connection))

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make the micro-batch visible, unless it is already."""
        tasks = _written(messages)
        named = {one.transaction for one in tasks}
        if not named:
            return
        (transaction,) = named
        assert transaction is not None, "a task of a stream says which"
        assert transaction.version == batchId, (transaction, batchId)
        _commit(self.connection, transaction, tasks)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Delete what was put, if no commit can have been tried."""
        _abort(self.connection, messages)


class _Process:
    """Under what this process commits batches that have no name; a number is used once, and rises.

    A name for every batch would do as well, but brokers remember names for days.
    """

    def __init__(self) -> None:
        self.application = f"batch-{SystemEntropy().token(16).hex()}"
        self.version = 0
        self.lock = threading.Lock()


def _process() -> _Process:
    """That of this process: a child that was forked has its own."""
    with _making:
        return _processes.setdefault(os.getpid(), _Process())


def _form(request: WriteRequest, schema: "StructType") -> RowFormat:
    for note in request.notes:
        if note not in _noted:
            _noted.add(note)
            _log.warning("%s", note)
    listed = ((one.name, one.dataType.simpleString()) for one in schema.fields)
    return RowFormat(checked_columns(listed, topic=request.topic), request.topic, request.codec)


def _of_this_batch() -> Transaction:
    context = TaskContext.get()
    assert context is not None, "a stream is written by tasks"
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    assert query is not None, "Spark tells the tasks of a stream which it is"
    assert batch is not None, "Spark tells the tasks of a stream which batch it is"
    return Transaction(query, int(batch))


def _written(messages: Messages) -> list[TaskWritten]:
    tasks = []
    for one in messages:
        assert isinstance(one, TaskWritten), "a commit of tasks that did not end"
        tasks.append(one)
    return tasks


def _commit(
    connection: ClusterOptions, transaction: Transaction, tasks: Sequence[TaskWritten]
) -> None:
    placed = [one for task in tasks for one in task.placed]
    if not placed:
        return
    running = runtime()
    brokers = running.reached(connection).brokers
    written = running.call(_committed(brokers, transaction, placed))
    if not written.is_new:
        _log.warning(
            "batch %d of %s is in the topic already: nothing is written again",
            transaction.version,
            transaction.application,
        )


async def _committed(
    brokers: Sequence[str], transaction: Transaction, placed: Sequence[PlacedObject]
) -> TransactionResult:
    client = WriteClient(brokers)
    try:
        return await client.commit(transaction, placed)
    finally:
        await client.close()


def _abort(connection: ClusterOptions, messages: Messages) -> None:
    """Spark commits only when every task has its message: one without says that it did not."""
    if None not in messages:
        return
    placed = [one for task in messages if isinstance(task, TaskWritten) for one in task.placed]
    if placed:
        running = runtime()
        objects = running.source(running.reached(connection)).objects
        running.call(delete_placed(objects, placed))
