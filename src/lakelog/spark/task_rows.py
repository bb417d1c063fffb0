"""What a Spark task reads: one split, as an iterator of Arrow batches.

Rules:

- A partition is all that a task knows: where the cluster is, what to read, which columns.
- Rows are fetched and made on the process's loop and one thread beside it, while Spark's thread
  hands over the batch before; a few batches wait, so memory is bounded.
- The read ends when Spark has enough of it: nothing goes on behind an iterator that was closed.
- A failure reaches the job as it was raised: its text names the option, object or range.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from lakelog.lake.read.range_reader import RowOptions
from lakelog.lake.read.splits import Split
from lakelog.lake.read.topic_source import ClusterAddress, TopicSource
from lakelog.spark.runtime import Runtime, runtime

if TYPE_CHECKING:
    import pyarrow as pa

BATCHES_AHEAD: Final = 2
"""Batches that wait for Spark to take them."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class SplitPartition(InputPartition):
    """A split as it travels to a task."""

    split: Split
    reached: ClusterAddress
    columns: tuple[str, ...]
    fail_on_data_loss: bool = True
    since_us: int | None = None
    """Rows that are older need not be given, and some are not."""


def read(partition: InputPartition) -> "Iterator[pa.RecordBatch]":
    """The rows of a partition; raises `DataLoss`, `Corrupt` and `Unavailable`."""
    if not isinstance(partition, SplitPartition):
        return  # Spark's own stand-in for a plan without partitions
    yield from rows(
        partition.split,
        partition.reached,
        RowOptions(
            partition.columns,
            partition.fail_on_data_loss,
            pool=runtime().pool,
            note=_noted,
            since_us=partition.since_us,
        ),
    )


def rows(split: Split, reached: ClusterAddress, options: RowOptions) -> "Iterator[pa.RecordBatch]":
    """The rows of a split, read ahead on the loop of this process."""
    running = runtime()
    pump = _Pump(running, running.source(reached), split, options)
    try:
        while (found := running.call(pump.queue.get())) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        pump.stop()


class _Pump:
    """Puts the rows of a split into a queue, until there are no more or somebody stops it."""

    def __init__(
        self, running: Runtime, source: TopicSource, split: Split, options: RowOptions
    ) -> None:
        self.queue: asyncio.Queue[pa.RecordBatch | BaseException | None]
        self.queue = asyncio.Queue(BATCHES_AHEAD)
        self._running = running
        self._task = running.spawn(self._run(source, split, options), name="split")

    async def _run(self, source: TopicSource, split: Split, options: RowOptions) -> None:
        try:
            async with aclosing(source.read(split, options)) as batches:
                async for batch in batches:
                    await self.queue.put(batch)
        except Exception as error:  # noqa: BLE001 - raised in the thread that takes
            await self.queue.put(error)
        await self.queue.put(None)

    def stop(self) -> None:
        """End it, from any thread."""
        self._running.cancel(self._task)


def _noted(note: str) -> None:
    _log.warning("%s", note)
