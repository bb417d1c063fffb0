"""The rows of a topic that no engine reads by itself, as an Arrow dataset of a kind of our own.

DuckDB asks a dataset for the columns that a statement needs and hands over the conditions that it
found, some only while it runs. So nothing else is decoded, and index entries that cannot hold such
a row are not read: what the index says of an entry is a guarantee that Arrow holds the conditions
against. DuckDB relies on the conditions being kept exactly; Arrow's scanner does that.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from lakelog.model.failures import Failure
from lakelog.reading.batches import read_batches
from lakelog.reading.plan import Hinted
from lakelog.reading.rows import RowOptions
from lakelog.reading.schema import arrow_schema
from lakelog.reading.source import Reached
from lakelog.reading.splits import PackOptions, pack
from lakelog.reading.sql_view import TAIL_COLUMNS

BLOCK_ENTRIES: Final = 64
"""Index entries that are ruled out together or not at all."""

_MS_MAX: Final = ((1 << 63) - 1) // 1000

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Block:
    """The offsets [start, end) of one of the ranges, and no later time than any of them has."""

    number: int
    partition: int
    start: int
    end: int
    max_timestamp_ms: int


class TopicRows(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """Ranges of one topic; `failures` has what went wrong in reading them, in its own words."""

    def __init__(
        self, reached: Reached, ranges: Sequence[Hinted], *, fail_on_data_loss: bool, threads: int
    ) -> None:
        self._reached = reached
        self._ranges = ranges
        self._fail_on_data_loss = fail_on_data_loss
        self._threads = threads
        self._blocks = list(blocks_of(ranges))
        self.failures: list[Failure] = []

    @property
    def schema(self) -> pa.Schema:
        """All columns but the topic."""
        return arrow_schema(TAIL_COLUMNS)

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: ds.Expression | None = None,  # noqa: A002 - Arrow's name, which DuckDB gives
        **_: object,
    ) -> ds.Scanner:
        """The rows that fulfil the condition, with these columns; called once for every scan."""
        wanted = list(TAIL_COLUMNS if columns is None else columns)
        named = re.findall(r"\w+", str(filter)) if filter is not None else []
        needed = tuple(name for name in TAIL_COLUMNS if name in wanted or name in named)
        ranges = chosen(self._ranges, self._blocks, filter)
        reader = pa.RecordBatchReader.from_batches(
            arrow_schema(needed), self._batches(ranges, needed)
        )
        return ds.Scanner.from_batches(reader, columns=wanted, filter=filter)

    def _batches(
        self, ranges: Sequence[Hinted], columns: tuple[str, ...]
    ) -> Iterator[pa.RecordBatch]:
        splits = pack(ranges, PackOptions(slots=self._threads))
        options = RowOptions(columns, self._fail_on_data_loss, note=_noted)
        try:
            yield from read_batches(self._reached, splits, options, threads=self._threads)
        except Failure as failure:
            self.failures.append(failure)  # DuckDB shows the text of a failure and drops the rest
            raise


def blocks_of(ranges: Sequence[Hinted]) -> Iterator[Block]:
    """The ranges in pieces of some entries, with what the index says of them."""
    for number, one in enumerate(ranges):
        entries = one.entries
        edges, times_ms = entries.edges, entries.max_timestamps_ms
        for first in range(0, len(entries), BLOCK_ENTRIES):
            stop = min(first + BLOCK_ENTRIES, len(entries))
            start = max(one.pinned.start, int(edges[first]))
            end = min(one.pinned.end, int(edges[stop]))
            if start < end:
                latest = int(times_ms[first:stop].max())
                yield Block(number, one.pinned.partition, start, end, latest)


def chosen(
    ranges: Sequence[Hinted], blocks: Sequence[Block], wanted: ds.Expression | None
) -> list[Hinted]:
    """The parts of the ranges that can hold a row that fulfils the condition, in order."""
    if wanted is None:
        return list(ranges)
    # A fragment is a file to Arrow; these are only ever asked whether they can hold such a row.
    form, files = ds.ParquetFileFormat(), LocalFileSystem()
    fragments = [
        form.make_fragment(str(at), files, partition_expression=_guarantee(block))
        for at, block in enumerate(blocks)
    ]
    known = ds.FileSystemDataset(fragments, arrow_schema(TAIL_COLUMNS), form, files)
    kept = sorted(int(one.path) for one in known.get_fragments(filter=wanted))
    runs: list[list[int]] = []
    for block in (blocks[at] for at in kept):
        if runs and runs[-1][0] == block.number and runs[-1][2] == block.start:
            runs[-1][2] = block.end
        else:
            runs.append([block.number, block.start, block.end])
    return [ranges[number].cut(start, end) for number, start, end in runs]


def _guarantee(block: Block) -> ds.Expression:
    """What is true of every row of the block."""
    known = (
        (ds.field("partition") == pa.scalar(block.partition, pa.int32()))
        & (ds.field("offset") >= block.start)
        & (ds.field("offset") < block.end)
    )
    if block.max_timestamp_ms >= _MS_MAX:
        return known
    latest_us = max(block.max_timestamp_ms, -_MS_MAX) * 1000
    return known & (ds.field("timestamp") <= pa.scalar(latest_us, pa.timestamp("us", tz="UTC")))


def _noted(note: str) -> None:
    _log.warning("%s", note)
