"""Is a WAL object that somebody else put what its Commit says? Pure.

The broker stays off the data path: of an object it reads header and index, its end, and the heads
of its batches. A batch that is hardly longer than what a read costs anyway is read whole, and then
its checksum is proved too; of a larger one the 61 bytes of its header are enough to know that the
index will not lie about it (size, offsets, times, no producer). The rest of its bytes are proved
against its CRC by everyone who reads them, as those of every batch are. So a Commit can point
neither at nothing nor at something else, and a gigabyte is checked by reading some kilobytes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from lakelog.domain.commit_event import Commit
from lakelog.model.failures import Corrupt
from lakelog.model.ids import ByteRange, DomainId
from lakelog.records.codecs import Codec
from lakelog.records.header import HEADER_BYTES, LAYOUT, MAGIC, BatchHeader, batch_crc
from lakelog.streams.table import Int64s
from lakelog.wal.layout import FOOTER, HEADER, INDEX_ENTRY, PREFIX, checked_object_key, decode_head

WHOLE_BYTES: Final = 64 << 10
"""Batches up to this size are read whole, and reads closer than this are one."""

SPAN_BYTES_MAX: Final = 4 << 20
"""A read ends after this much, so that an object of small batches does not come at once."""

OBJECT_BYTES_MAX: Final = 64 << 20
"""The largest object that is taken from others; ours are closed far below it."""

_HEAD_BYTES: Final = PREFIX.size + HEADER_BYTES


@dataclass(frozen=True, slots=True)
class BatchRule:
    """What the topic of a stream asks of every batch."""

    message_bytes_max: int
    is_log_append_time: bool


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes to read, and the batches [first, end) of the Commit whose heads are in them."""

    range: ByteRange
    first: int
    end: int


def key_of(domain: int, commit: Commit) -> str:
    """The object's key; raises `Corrupt` when no object can be called that."""
    key = checked_object_key(commit.zone, DomainId(domain), commit.wal_id)
    if key is None:
        raise Corrupt(f"no WAL object has the id {commit.wal_id.hex()} and zone {commit.zone!r}")
    return key


def spans(commit: Commit) -> Iterator[Span]:
    """What to read of the object: the first span begins at 0, the last one ends where it ends."""
    begin, first, reach = 0, 0, _index_end(commit)
    ends = commit.byte_start.astype(np.int64) + commit.byte_length
    for at, start in enumerate(commit.byte_start.tolist()):
        batch_end = int(ends[at])
        wanted = batch_end if batch_end - start <= WHOLE_BYTES else start + _HEAD_BYTES
        if start - reach > WHOLE_BYTES or wanted - begin > SPAN_BYTES_MAX:
            yield Span(ByteRange(begin, reach), first, at)
            begin, first = start, at
        reach = max(reach, wanted)
    tail = commit.size_bytes - FOOTER.size
    if tail - reach > WHOLE_BYTES:
        yield Span(ByteRange(begin, reach), first, len(ends))
        begin, first = tail, len(ends)
    yield Span(ByteRange(begin, commit.size_bytes), first, len(ends))


def check_commit(commit: Commit) -> None:
    """Raise `Corrupt` for numbers that no object has, before anything is read."""
    if commit.size_bytes > OBJECT_BYTES_MAX:
        raise Corrupt(f"{commit.size_bytes} bytes; an object has at most {OBJECT_BYTES_MAX}")
    if int(commit.stream[0]) < 0:
        raise Corrupt(f"{commit.stream[0]} is no stream")
    if int(commit.byte_length.min()) < _HEAD_BYTES:
        raise Corrupt("a batch without a header")
    lasts = commit.byte_start[-1].astype(np.int64) + commit.byte_length[-1]
    if int(commit.byte_start[0]) != _index_end(commit) or lasts + FOOTER.size != commit.size_bytes:
        raise Corrupt("its batches do not fill the object from its index to its end")


def check_index(domain: int, commit: Commit, data: memoryview) -> None:
    """Raise `Corrupt` unless header and index, which `data` begins with, are the Commit's."""
    found = decode_head(
        data[: _index_end(commit)], size_bytes=commit.size_bytes, wal_id=commit.wal_id
    )
    if found.domain != domain:
        raise Corrupt(f"the object belongs to domain {found.domain}, not {domain}")
    firsts = _firsts(commit)
    ends = np.append(firsts[1:], len(commit.stream))
    latest = np.maximum.reduceat(commit.max_timestamp, firsts)
    counts = np.add.reduceat(commit.offset_count.astype(np.int64), firsts)
    byte_ends = commit.byte_start.astype(np.int64) + commit.byte_length
    said = zip(
        commit.stream[firsts].tolist(),
        commit.byte_start[firsts].tolist(),
        byte_ends[ends - 1].tolist(),
        counts.tolist(),
        (ends - firsts).tolist(),
        latest.tolist(),
        strict=True,
    )
    stored = [
        (
            chunk.stream_id,
            chunk.start,
            chunk.end,
            chunk.record_count,
            chunk.batch_count,
            chunk.max_timestamp_ms,
        )
        for chunk in found.chunks
    ]
    if list(said) != stored:
        raise Corrupt("the object's index is not what its commit says")


def check_batch(commit: Commit, at: int, data: memoryview, rules: Mapping[int, BatchRule]) -> None:
    """Raise `Corrupt` unless the batch whose bytes begin `data` is what the Commit says."""
    header = BatchHeader(*LAYOUT.unpack_from(data, PREFIX.size))
    size = int(commit.byte_length[at]) - PREFIX.size
    stream, count = int(commit.stream[at]), int(commit.offset_count[at])
    if PREFIX.unpack_from(data)[0] != size or header.size_bytes != size:
        raise Corrupt(f"batch {at} of stream {stream} has not the size that its commit says")
    if header.base_offset != 0 or header.magic != MAGIC or header.codec > Codec.ZSTD:
        raise Corrupt(f"batch {at} of stream {stream} is not a batch as it is stored")
    if header.last_offset_delta + 1 != count or header.record_count != count:
        raise Corrupt(f"batch {at} of stream {stream} does not have {count} records")
    if header.max_timestamp_ms != int(commit.max_timestamp[at]):
        raise Corrupt(f"batch {at} of stream {stream} has another timestamp than its commit")
    if header.producer_id >= 0 or header.transactional or header.control:
        raise Corrupt(f"batch {at} of stream {stream} is of a producer or a transaction")
    _check_rule(header, stream, rules[stream])
    if len(data) >= PREFIX.size + size:
        # Read whole (`WHOLE_BYTES`); of larger ones whoever reads them proves the CRC.
        batch = data[PREFIX.size : PREFIX.size + size]
        if batch_crc(batch) != header.crc:
            raise Corrupt(f"the CRC-32C of batch {at} of stream {stream} does not match")


def _check_rule(header: BatchHeader, stream: int, rule: BatchRule) -> None:
    if header.size_bytes > rule.message_bytes_max:
        raise Corrupt(
            f"a batch of stream {stream} has {header.size_bytes} bytes; its topic's"
            f" max.message.bytes is {rule.message_bytes_max}"
        )
    if header.log_append_time != rule.is_log_append_time:
        raise Corrupt(
            f"a batch of stream {stream} does not keep its topic's message.timestamp.type"
        )


def _firsts(commit: Commit) -> Int64s:
    """The first batch of each stream."""
    changes = np.append(True, commit.stream[1:] != commit.stream[:-1])
    return np.flatnonzero(changes).astype(np.int64)


def _index_end(commit: Commit) -> int:
    return HEADER.size + len(_firsts(commit)) * INDEX_ENTRY.size
