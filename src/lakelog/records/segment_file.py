"""The bytes of a segment, version 1 (docs/formats-segments.md): one stream's batches, in order.

All integers are big-endian:

    header   magic "KAFS", version u16, flags u16, base offset i64, message count u32,
             created i64 (milliseconds), entries of the index within this file u32: 32 bytes
    batches  record batches v2 as they were accepted, each with its true base offset, without gap
    index    magic 00 "IDX", version u16, entry count u32, interval u32, reserved u16: 16 bytes;
             then entries of offset i64 and position u32
    footer   CRC-32 of all batches u32, last offset i64, magic "END!": 16 bytes

The index lies within the file, before its footer, so that one put makes both. A part of a segment
vouches for itself: its batches begin at the offset and position that the index says, follow each
other, end where the next part begins, and each has its CRC-32C. So every single flipped bit and
every cut is seen in the part that is read, but for the partition leader epoch, which is written
anew whenever a batch is served, and for what only `decode` reads: created, count and CRC-32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import BinaryIO, Final
from zlib import crc32

import msgspec

from lakelog.model.failures import Corrupt
from lakelog.records.header import (
    ATTRIBUTES_OFFSET,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    parse_header,
    patch,
)
from lakelog.records.kernels import crc32c

SEGMENT_MAGIC: Final = b"KAFS"
INDEX_MAGIC: Final = b"\x00IDX"
FOOTER_MAGIC: Final = b"END!"
VERSION: Final = 1

HEADER: Final = Struct(">4sHHqIqI")
INDEX_HEADER: Final = Struct(">4sHIIH")
INDEX_ENTRY: Final = Struct(">qI")
FOOTER: Final = Struct(">Iq4s")

INDEX_INTERVAL_BYTES: Final = 256 << 10
"""An entry of the index stands for at least so many bytes: by bytes, because messages may be of any
size; with a million small ones between two entries a read would bring them all."""

UINT32_MAX: Final = (1 << 32) - 1
SEGMENT_BYTES_MAX: Final = UINT32_MAX
"""What an index can point into."""

_BATCH: Final = Struct(">qiibIhi")
"""A batch's header up to its last offset delta."""

_COUNTS: Final = Struct(">23xi8xq14xi")
"""Of a batch's header its last offset delta, greatest timestamp and record count."""


class IndexEntry(msgspec.Struct, frozen=True, gc=False):
    """The batch with this base offset begins at this byte of the file."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A finished segment of the offsets [start, end)."""

    start: int
    end: int
    batch_count: int
    record_count: int
    """As the batches' headers say, whether or not the records can be read."""
    size_bytes: int
    max_timestamp_ms: int
    """The greatest of the batches' headers."""


@dataclass(frozen=True, slots=True)
class SegmentMap:
    """What the two ends of a segment say: its offsets [start, end), and where they lie."""

    start: int
    end: int
    created_ms: int
    message_count: int
    crc: int
    body_end: int
    """Where the last batch ends."""
    entries: tuple[IndexEntry, ...]
    """At least one: the first batch. Empty only where the index is a file of its own."""


class SegmentWriter:
    """Writes a segment to a file that can be sought, batch by batch."""

    def __init__(
        self,
        file: BinaryIO,
        *,
        created_ms: int,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    ) -> None:
        self._file = file
        self._interval_bytes = index_interval_bytes
        self._created_ms = created_ms
        self._entries: list[IndexEntry] = []
        self._position = HEADER.size
        self._start = self._end = -1
        self._batches = self._records = self._crc = 0
        self._max_timestamp_ms = -1 << 63
        file.write(bytes(HEADER.size))

    def add(self, batches: Sequence[memoryview], base_offset: int) -> int:
        """Append verified batches, which begin where those before ended; returns their end.

        They are copied here, once: one call for many small batches costs far less than many.
        """
        assert base_offset == self._end or not self._batches, (base_offset, self._end)
        if not self._batches:
            self._start = base_offset
        base, position = base_offset, self._position
        parts: list[bytes | memoryview] = []
        for batch in batches:
            last_delta, max_timestamp_ms, records = _COUNTS.unpack_from(batch)
            if last_delta < 0:
                raise Corrupt(f"the batch at offset {base} has a last offset delta of {last_delta}")
            if not self._entries or position - self._entries[-1].position >= self._interval_bytes:
                self._entries.append(IndexEntry(base, position))
            parts += patch(batch, base_offset=base)
            self._records += max(0, records)
            self._max_timestamp_ms = max(self._max_timestamp_ms, max_timestamp_ms)
            base, position = base + last_delta + 1, position + len(batch)
        assert position <= SEGMENT_BYTES_MAX, position
        joined = b"".join(parts)
        self._crc = crc32(joined, self._crc)
        self._file.write(joined)
        self._batches += len(batches)
        self._end, self._position = base, position
        return base

    def close(self) -> SegmentFacts:
        """Write index, footer and, now that it is known, the header."""
        assert self._batches, "a segment without batches has no reader"
        index = encode_index(self._entries, end=self._end)
        self._file.write(index)
        self._file.write(FOOTER.pack(self._crc, self._end - 1, FOOTER_MAGIC))
        self._file.seek(0)
        self._file.write(
            HEADER.pack(
                SEGMENT_MAGIC,
                VERSION,
                0,
                self._start,
                min(self._records, UINT32_MAX),
                self._created_ms,
                len(self._entries),
            )
        )
        return SegmentFacts(
            self._start,
            self._end,
            self._batches,
            self._records,
            self._position + len(index) + FOOTER.size,
            self._max_timestamp_ms,
        )


def encode_index(entries: Sequence[IndexEntry], *, end: int) -> bytes:
    """The index of a segment that ends before the offset `end`."""
    head = INDEX_HEADER.pack(INDEX_MAGIC, VERSION, len(entries), _interval(entries, end), 0)
    return head + b"".join(INDEX_ENTRY.pack(one.offset, one.position) for one in entries)


def _interval(entries: Sequence[IndexEntry], end: int) -> int:
    """The most offsets from one entry to the next, which the field has room for."""
    edges = [*(one.offset for one in entries), end]
    return min(max(after - before for before, after in pairwise(edges)), UINT32_MAX)


def tail_bytes(head: memoryview) -> int:
    """How many bytes at a segment's end its header says that index and footer take."""
    if len(head) < HEADER.size:
        raise Corrupt(f"{len(head)} bytes are no header of a segment")
    return _index_bytes(HEADER.unpack_from(head)[6]) + FOOTER.size


def _index_bytes(count: int) -> int:
    return INDEX_HEADER.size + count * INDEX_ENTRY.size if count else 0


def parse_segment(head: memoryview, tail: memoryview, *, size_bytes: int) -> SegmentMap:
    """What a segment's ends say: its first bytes, and `tail_bytes` or more of its last ones."""
    needed = tail_bytes(head)
    magic, version, flags, start, messages, created_ms, count = HEADER.unpack_from(head)
    if (magic, version, flags) != (SEGMENT_MAGIC, VERSION, 0):
        raise Corrupt(f"not a segment of version 1: {magic!r}, {version}, flags {flags}")
    body_end = size_bytes - needed
    if body_end < HEADER.size + HEADER_BYTES or len(tail) < needed:
        raise Corrupt(f"{size_bytes} bytes are too few for a segment with {count} index entries")
    crc, last_offset, end_magic = FOOTER.unpack_from(tail, len(tail) - FOOTER.size)
    if end_magic != FOOTER_MAGIC or not 0 <= start <= last_offset:
        raise Corrupt(f"the segment from {start} on ends with {last_offset}, {end_magic!r}")
    end = last_offset + 1
    index = tail[len(tail) - needed : len(tail) - FOOTER.size]
    entries = parse_index(index, end=end) if count else ()
    if len(entries) != count:
        raise Corrupt(f"the header says {count} index entries, the index {len(entries)}")
    if entries and (entries[0] != IndexEntry(start, HEADER.size) or not _fits(entries, body_end)):
        raise Corrupt("the index does not fit its segment")
    return SegmentMap(start, end, created_ms, messages, crc, body_end, entries)


def _fits(entries: Sequence[IndexEntry], body_end: int) -> bool:
    """Whether every entry has room for a batch."""
    edges = [*(one.position for one in entries), body_end]
    return all(after - before >= HEADER_BYTES for before, after in pairwise(edges))


def parse_index(data: memoryview, *, end: int) -> tuple[IndexEntry, ...]:
    """The entries of an index, which rise and lie below the offset `end`."""
    if len(data) < INDEX_HEADER.size:
        raise Corrupt(f"{len(data)} bytes are no index of a segment")
    magic, version, count, interval, reserved = INDEX_HEADER.unpack_from(data)
    if (magic, version, reserved) != (INDEX_MAGIC, VERSION, 0):
        raise Corrupt(f"not a segment's index of version 1: {magic!r}, {version}, {reserved}")
    if not count or len(data) != _index_bytes(count):
        raise Corrupt(f"an index of {count} entries does not have {len(data)} bytes")
    entries = tuple(IndexEntry(*one) for one in INDEX_ENTRY.iter_unpack(data[INDEX_HEADER.size :]))
    edges = [*(one.offset for one in entries), end]
    if any(before >= after for before, after in pairwise(edges)):
        raise Corrupt("the offsets of a segment's index do not rise")
    if interval != _interval(entries, end):
        raise Corrupt(f"the interval of a segment's index is not {interval}")
    return entries


def verify_batches(data: memoryview, *, start: int, end: int) -> list[memoryview]:
    """The batches that fill these bytes and hold the offsets [start, end), each one checked."""
    batches = []
    place, base = 0, start
    while place < len(data):
        if len(data) - place < HEADER_BYTES:
            raise Corrupt(f"the data ends within the batch at offset {base}")
        base_offset, length, _, magic, crc, _, last_delta = _BATCH.unpack_from(data, place)
        after = place + length + LENGTH_PREFIX_BYTES
        if not place + HEADER_BYTES <= after <= len(data):
            raise Corrupt(f"the batch at offset {base} has a length of {length}")
        if base_offset != base or magic != MAGIC or last_delta < 0:
            raise Corrupt(f"the batch at offset {base} says {base_offset}, magic {magic}")
        if crc32c(data[place + ATTRIBUTES_OFFSET : after]) != crc:
            raise Corrupt(f"the CRC-32C of the batch at offset {base} does not match")
        batches.append(data[place:after])
        place, base = after, base + last_delta + 1
    if base != end:
        raise Corrupt(f"the batches from {start} on end at {base} and not {end}")
    return batches


def decode(data: memoryview) -> tuple[SegmentMap, list[memoryview]]:
    """Verify a whole segment, with or without an index in it, and find its batches."""
    found = parse_segment(data[: HEADER.size], data, size_bytes=len(data))
    body = data[HEADER.size : found.body_end]
    if crc32(body) != found.crc:
        raise Corrupt("the segment's CRC-32 does not match")
    batches = verify_batches(body, start=found.start, end=found.end)
    headers = [parse_header(batch) for batch in batches]
    messages = min(sum(max(0, one.record_count) for one in headers), UINT32_MAX)
    if messages != found.message_count:
        raise Corrupt(f"{messages} messages, and not {found.message_count}")
    places = {}
    position = HEADER.size
    for header in headers:
        places[header.base_offset] = position
        position += header.size_bytes
    if any(places.get(one.offset) != one.position for one in found.entries):
        raise Corrupt("the index names a place where no batch begins")
    return found, batches
