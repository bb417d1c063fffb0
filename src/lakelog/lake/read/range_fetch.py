"""The bytes of a range, fetched in portions of some MiB: of WAL objects, segments and data files.

A portion is fetched by itself and then turned into rows by itself, so that the next ones are on
their way meanwhile. Everything is checked before it is used. What is not there is `ObjectGone`,
with the key: the index may know better by now. What is damaged is `Corrupt`, with the key.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from lakelog.index.entries import Entry
from lakelog.lake.read.range_plan import PlannedRange
from lakelog.lake.read.row_decoder import RowMaker
from lakelog.lake.read.shared_reads import ByteSource
from lakelog.log.plan import coalesce, cut_out
from lakelog.model.failures import Corrupt, Failure, NotFound
from lakelog.model.ids import ByteRange
from lakelog.records.acceptance import DECOMPRESSED_BYTES_MAX
from lakelog.records.header import parse_header
from lakelog.records.segment_file import (
    HEADER,
    SegmentMap,
    parse_segment,
    tail_bytes,
    verify_batches,
)
from lakelog.records.table_bytes import TAIL_BYTES, footer_bytes
from lakelog.records.table_file import TableFile
from lakelog.records.table_rows import RowBuilder, UnreadableBatchError
from lakelog.records.table_schema import TIMESTAMP_US_MAX, RowGroup
from lakelog.streams.objects import FileKind
from lakelog.wal.layout import verify_run

if TYPE_CHECKING:
    import pyarrow as pa

READ_BYTES: Final = 4 << 20
"""What is fetched at once of WAL objects and segments."""

OBJECTS_PER_PORTION: Final = 64
"""WAL objects that are read at the same time."""

ROWS_BYTES: Final = 4 << 20
"""Decompressed bytes that become rows at once: what fits the processor's cache is faster."""

FOOTER_BYTES: Final = 64 << 10
"""What is read of a large file's end at first: the footer of a common one."""

SMALL_BYTES: Final = 1 << 20
"""A file up to this size is read whole."""

Skip: TypeAlias = "Callable[[UnreadableBatchError, str], None]"
"""Hears of a batch that cannot be read, and the key of its object; raises to end the read."""


class ObjectGone(Failure):
    """An object that the plan names is not there."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} is not there")
        self.key = key


@dataclass(frozen=True, slots=True)
class Portion:
    """Bytes that hold the offsets [start, end), fetched, and what makes rows of them."""

    start: int
    end: int
    rows: "Callable[[], Iterator[pa.RecordBatch]]"


@dataclass(frozen=True, slots=True)
class RangeRead:
    """What is read, where, and how."""

    objects: ByteSource
    hinted: PlannedRange
    maker: RowMaker
    skip: Skip
    since_us: int | None = None
    """Row groups that are older are left out."""


async def fetches(reading: RangeRead) -> "AsyncGenerator[_Fetch, None]":
    """What has to be fetched for the range, in order; only footers and indexes are read here."""
    pinned, entries = reading.hinted.pinned, reading.hinted.entries
    held: list[Entry] = []
    size = 0
    for entry in entries:
        if entry.end <= pinned.start or entry.start >= pinned.end:
            continue
        is_wal = entry.kind is FileKind.WAL
        full = size + entry.byte_length > READ_BYTES or len(held) >= OBJECTS_PER_PORTION
        # Runs of WAL objects share a portion; a file after them ends it, for rows come in order.
        if held and (full or not is_wal):
            yield _WalFetch(reading, tuple(held))
            held, size = [], 0
        if is_wal:
            held.append(entry)
            size += entry.byte_length
        elif entry.kind is FileKind.SEGMENT:
            for part in await _segment_fetches(reading, entry):
                yield part
        else:
            for group in await _table_fetches(reading, entry):
                yield group
    if held:
        yield _WalFetch(reading, tuple(held))


@dataclass(frozen=True, slots=True)
class _WalFetch:
    """Some runs of WAL objects."""

    reading: RangeRead
    entries: tuple[Entry, ...]

    async def fetch(self) -> Portion:
        """Get the runs, each object once."""
        by_key: dict[str, list[Entry]] = {}
        for entry in self.entries:
            by_key.setdefault(entry.key, []).append(entry)
        objects = self.reading.objects
        found: dict[Entry, memoryview] = {}
        reads = (_runs(objects, key, group) for key, group in by_key.items())
        # All are waited for, so that none goes on when the read has ended.
        for runs in await asyncio.gather(*reads, return_exceptions=True):
            if isinstance(runs, BaseException):
                raise runs
            found |= runs
        runs_in_order = [(entry, found[entry]) for entry in self.entries]
        first, last = self.entries[0].start, self.entries[-1].end
        return Portion(first, last, lambda: _rows(self.reading, self._batches(runs_in_order)))

    def _batches(
        self, runs: Sequence[tuple[Entry, memoryview]]
    ) -> Iterator[tuple[int, memoryview, str]]:
        pinned = self.reading.hinted.pinned
        for entry, run in runs:
            base, key = entry.start, entry.key
            with _named(key):
                batches = verify_run(run)
            for batch in batches:
                end = base + parse_header(batch).last_offset_delta + 1
                if end > pinned.start and base < pinned.end:
                    yield base, batch, key
                base = end
            if base != entry.end:
                said = f"the batches from {entry.start} on end at {base} and not {entry.end}"
                raise Corrupt(f"{key}: {said}")


@dataclass(frozen=True, slots=True)
class _SegmentFetch:
    """A part of a segment."""

    reading: RangeRead
    key: str
    span: ByteRange
    start: int
    end: int

    async def fetch(self) -> Portion:
        """Get the part."""
        (data,) = await _got(self.reading.objects, self.key, [self.span])
        return Portion(self.start, self.end, lambda: _rows(self.reading, self._batches(data)))

    def _batches(self, data: memoryview) -> Iterator[tuple[int, memoryview, str]]:
        pinned = self.reading.hinted.pinned
        with _named(self.key):
            batches = verify_batches(data, start=self.start, end=self.end)
        for batch in batches:
            header = parse_header(batch)
            end = header.base_offset + header.last_offset_delta + 1
            if end > pinned.start and header.base_offset < pinned.end:
                yield header.base_offset, batch, self.key


@dataclass(frozen=True, slots=True)
class _GroupFetch:
    """A row group of a data file."""

    reading: RangeRead
    entry: Entry
    file: TableFile
    number: int
    held: memoryview | None
    """Its bytes, where they came with the footer."""

    async def fetch(self) -> Portion:
        """Get the row group."""
        group = self.file.row_groups[self.number]
        data = self.held
        if data is None:
            span = ByteRange(group.byte_start, group.byte_end)
            (data,) = await _got(self.reading.objects, self.entry.key, [span])
        taken = data
        return Portion(group.start, min(group.end, self.entry.end), lambda: self._rows(taken))

    def _rows(self, data: memoryview) -> "Iterator[pa.RecordBatch]":
        pinned, maker = self.reading.hinted.pinned, self.reading.maker
        start, end = max(pinned.start, self.entry.start), min(pinned.end, self.entry.end)
        with _named(self.entry.key):
            rows = self.file.read(self.number, data, columns=maker.sources())
            yield from maker.made(rows, start=start, end=end)


_Fetch: TypeAlias = _WalFetch | _SegmentFetch | _GroupFetch


async def _segment_fetches(reading: RangeRead, entry: Entry) -> list[_SegmentFetch]:
    """The parts of a segment that the range needs, some MiB each."""
    segment = await _opened_segment(reading.objects, entry)
    pinned = reading.hinted.pinned
    parts = []
    start, position = segment.start, HEADER.size
    edges = [(mark.offset, mark.position) for mark in segment.entries[1:]]
    for offset, place in [*edges, (segment.end, segment.body_end)]:
        if start >= pinned.end:
            break
        if offset <= pinned.start:
            start, position = offset, place  # all of it lies before the range
        elif place - position >= READ_BYTES or offset >= min(pinned.end, segment.end):
            span = ByteRange(position, place)
            parts.append(_SegmentFetch(reading, entry.key, span, start, offset))
            start, position = offset, place
    return parts


async def _opened_segment(objects: ByteSource, entry: Entry) -> SegmentMap:
    size_bytes = entry.byte_length
    (head,) = await _got(objects, entry.key, [ByteRange(0, min(HEADER.size, size_bytes))])
    with _named(entry.key):
        needed = tail_bytes(head)
        if needed > size_bytes:
            raise Corrupt(f"{size_bytes} bytes, index and footer would have {needed}")
        (tail,) = await _got(objects, entry.key, [ByteRange(size_bytes - needed, size_bytes)])
        found = parse_segment(head, tail, size_bytes=size_bytes)
        if not found.entries or found.start > entry.start or found.end != entry.end:
            raise Corrupt(f"it holds [{found.start}, {found.end}), or has no index")
    return found


async def _table_fetches(reading: RangeRead, entry: Entry) -> list[_GroupFetch]:
    """The row groups of a data file that the range needs."""
    file, end = await _opened_table(reading, entry)
    pinned = reading.hinted.pinned
    start, stop = max(pinned.start, entry.start), min(pinned.end, entry.end)
    first = bisect_right(file.row_groups, start, key=lambda group: group.end)
    after = bisect_left(file.row_groups, stop, key=lambda group: group.start)
    held_from = entry.byte_length - len(end)
    groups = []
    for number in range(first, after):
        group = file.row_groups[number]
        if _is_older(group, reading.since_us):
            continue
        held = None
        if group.byte_start >= held_from:
            held = end[group.byte_start - held_from : group.byte_end - held_from]
        groups.append(_GroupFetch(reading, entry, file, number, held))
    return groups


def _is_older(group: RowGroup, since_us: int | None) -> bool:
    """Whether all rows of the group are; a greatest timestamp that was clamped tells nothing."""
    if since_us is None or group.max_timestamp_us >= TIMESTAMP_US_MAX:
        return False
    return group.max_timestamp_us < since_us


async def _opened_table(reading: RangeRead, entry: Entry) -> tuple[TableFile, memoryview]:
    """The file by its footer, which must say what the index says, and what was read of its end."""
    objects, size_bytes = reading.objects, entry.byte_length
    wanted = size_bytes if size_bytes <= SMALL_BYTES else FOOTER_BYTES
    (end,) = await _got(objects, entry.key, [ByteRange(size_bytes - wanted, size_bytes)])
    with _named(entry.key):
        needed = footer_bytes(end[-TAIL_BYTES:])
        if needed > size_bytes:
            raise Corrupt(f"{size_bytes} bytes, its footer would have {needed}")
        if needed > len(end):
            span = ByteRange(size_bytes - needed, size_bytes)
            (end,) = await _got(objects, entry.key, [span])
        file = TableFile.open(end, size_bytes=size_bytes)
        origin, pinned = file.origin, reading.hinted.pinned
        if (origin.stream, origin.topic_id) != (pinned.stream, pinned.topic_id):
            raise Corrupt(f"the file is of stream {origin.stream}, not of {pinned.stream}")
        if origin.start > entry.start or origin.end < entry.end:
            raise Corrupt(f"the file holds [{origin.start}, {origin.end}), its entry does not")
    return file, end


@contextmanager
def _named(key: str) -> Iterator[None]:
    """Whatever is found to be damaged here names the object."""
    try:
        yield
    except Corrupt as error:
        if key in str(error):
            raise
        raise Corrupt(f"{key}: {error}") from error


def _rows(
    reading: RangeRead, batches: Iterator[tuple[int, memoryview, str]]
) -> "Iterator[pa.RecordBatch]":
    """The rows of verified batches, some MiB at a time."""
    pinned, maker = reading.hinted.pinned, reading.maker
    builder = RowBuilder(partition=pinned.partition, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    keys: dict[int, str] = {}
    for base, batch, key in batches:
        keys[base] = key
        try:
            builder.add(base, batch)
        except UnreadableBatchError as error:
            reading.skip(error, key)
        if builder.size_bytes >= ROWS_BYTES:
            rows = _taken(reading, builder, keys)
            yield from maker.made(rows, start=pinned.start, end=pinned.end)
            keys.clear()
    yield from maker.made(_taken(reading, builder, keys), start=pinned.start, end=pinned.end)


def _taken(reading: RangeRead, builder: RowBuilder, keys: Mapping[int, str]) -> "pa.Table":
    """The rows that the builder holds; `keys` are those of the objects, by base offset."""
    while True:  # once more for every batch that is skipped
        try:
            return builder.take()
        except UnreadableBatchError as error:
            reading.skip(error, keys[error.base_offset])


async def _runs(objects: ByteSource, key: str, entries: Sequence[Entry]) -> dict[Entry, memoryview]:
    """The bytes of the entries of one object, in few reads."""
    spans = [ByteRange(entry.byte_start, entry.byte_start + entry.byte_length) for entry in entries]
    merged = coalesce(spans)
    contents = await _got(objects, key, merged)
    return dict(zip(entries, cut_out(spans, merged, contents), strict=True))


async def _got(objects: ByteSource, key: str, spans: Sequence[ByteRange]) -> list[memoryview]:
    try:
        return await objects.get_ranges(key, spans)
    except NotFound as error:
        raise ObjectGone(key) from error
