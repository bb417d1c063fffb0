"""Build record batches: from rows for tests and the command line, from columns for bulk.

Both write the bytes that Kafka's own builders write: numbers in their shortest form, the first
record's timestamp as base, the greatest as max. Offset deltas are 0..n-1 unless given; given ones
may have holes, as compaction leaves them (row 8).

Where a record with a key goes is decided here too, as Kafka's producers decide it (`partition_of`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from lakelog.records import kernels
from lakelog.records.codecs import Codec, compress
from lakelog.records.header import (
    CONTROL_BIT,
    CRC_OFFSET,
    HEADER_BYTES,
    LAYOUT,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    batch_crc,
    write_varint,
)
from lakelog.records.kernels import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from lakelog.records.kernels import Blobs, Longs

NUMBERS: Final = 8
"""The rows of `RecordBlock.numbers`: timestamp, offset delta, key start and end, value start and
end, first header and the one after the last."""

_RECORD_OVERHEAD_BYTES: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
_HEADER_OVERHEAD_BYTES: Final = 5 + 5


class Record(NamedTuple):
    """One record as a row."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = NO_TIMESTAMP_MS
    headers: Sequence[tuple[bytes, bytes | None]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """What the header says beside what the records give."""

    codec: Codec = Codec.NONE
    base_offset: int = 0
    partition_leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    append_time_ms: int | None = None
    """With a value the batch is stamped LogAppendTime: every record has this timestamp."""
    transactional: bool = False
    control: bool = False
    offset_deltas: Sequence[int] | None = field(default=None)
    last_offset_delta: int | None = None
    """Beyond the last record, where compaction removed the batch's tail."""


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Many records as packed columns; a start of -1 is null."""

    numbers: "Longs"
    """`NUMBERS` rows of one value per record."""
    blobs: "Blobs"
    """Read-only bytes of keys, values, header keys, header values."""
    headers: "Longs"
    """Four rows of one value per header: key start and end, value start and end."""


def build_batch(records: Sequence[Record], options: BatchOptions) -> bytes:
    """One batch of these rows."""
    deltas = options.offset_deltas or range(len(records))
    base_ms = records[0].timestamp_ms if records else NO_TIMESTAMP_MS
    output = bytearray()
    for delta, record in zip(deltas, records, strict=True):
        body = encode_record(record, timestamp_delta_ms=record.timestamp_ms - base_ms, delta=delta)
        write_varint(output, len(body))
        output += body
    greatest_ms = max((record.timestamp_ms for record in records), default=NO_TIMESTAMP_MS)
    last = deltas[-1] if records else -1
    shape = _Shape(len(records), last, base_ms, greatest_ms)
    return _seal(memoryview(output), shape, options)


def build_from_block(block: RecordBlock, options: BatchOptions) -> bytes:
    """One batch of these columns; offset deltas and timestamps are the block's."""
    import numpy as np  # noqa: PLC0415 - rows need no numpy, and a broker starts without it

    count = block.numbers.shape[1]
    if count == 0:
        return build_batch((), options)
    base_ms = int(block.numbers[0, 0])
    shape = _Shape(count, int(block.numbers[1, -1]), base_ms, int(block.numbers[0].max()))
    numbers = np.ascontiguousarray(block.numbers, np.int64).copy()
    numbers[0] -= base_ms
    native = kernels.native
    if native is None:
        return _seal(memoryview(write_in_python(replace(block, numbers=numbers))), shape, options)
    output = np.empty(int(record_bytes_bound(block).sum()), np.uint8)
    written = native.write_records(numbers, block.blobs, block.headers, output)
    return _seal(output[:written].data, shape, options)


def record_bytes_bound(block: RecordBlock) -> "Longs":
    """For each record, the most bytes it can need before compression."""
    import numpy as np  # noqa: PLC0415 - as above

    numbers = block.numbers
    sizes = _RECORD_OVERHEAD_BYTES + (numbers[3] - numbers[2]) + (numbers[5] - numbers[4])
    headers = block.headers
    each = _HEADER_OVERHEAD_BYTES + (headers[1] - headers[0]) + (headers[3] - headers[2])
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(each, dtype=np.int64)))
    bound: Longs = sizes + before[numbers[7]] - before[numbers[6]]
    return bound


def plan_batches(block: RecordBlock, bytes_max: int) -> list[tuple[int, int]]:
    """Row ranges [start, end) whose batches stay within `bytes_max`; one row at the least each."""
    import numpy as np  # noqa: PLC0415 - as above

    ends = np.cumsum(record_bytes_bound(block))
    ranges = []
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        room = before + bytes_max - HEADER_BYTES
        end = max(start + 1, int(np.searchsorted(ends, room, side="right")))
        ranges.append((start, end))
        start = end
    return ranges


def encode_record(record: Record, *, timestamp_delta_ms: int, delta: int) -> bytearray:
    """One record without its length."""
    body = bytearray(1)  # a record's own attributes: none are defined
    write_varint(body, timestamp_delta_ms)
    write_varint(body, delta)
    _write_blob(body, record.key)
    _write_blob(body, record.value)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        _write_blob(body, key)
        _write_blob(body, value)
    return body


def _write_blob(output: bytearray, blob: bytes | None) -> None:
    if blob is None:
        write_varint(output, -1)
    else:
        write_varint(output, len(blob))
        output += blob


def write_in_python(block: RecordBlock) -> bytearray:
    """The kernel's twin; the timestamps are deltas already."""
    keys, values, header_keys, header_values = (blob.data for blob in block.blobs)
    headers = list(zip(*block.headers.tolist(), strict=True))
    output = bytearray()
    for row in zip(*block.numbers.tolist(), strict=True):
        timestamp_ms, delta, key_start, key_end, value_start, value_end, first, after = row
        record = Record(
            _slice(keys, key_start, key_end),
            _slice(values, value_start, value_end),
            timestamp_ms,
            [
                (_slice(header_keys, a, b) or b"", _slice(header_values, c, d))
                for a, b, c, d in headers[first:after]
            ],
        )
        body = encode_record(record, timestamp_delta_ms=timestamp_ms, delta=delta)
        write_varint(output, len(body))
        output += body
    return output


def _slice(data: memoryview, start: int, end: int) -> bytes | None:
    return None if start < 0 else bytes(data[start:end])


class _Shape(NamedTuple):
    """What the records say about their header."""

    record_count: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int


def _seal(records: memoryview, shape: _Shape, options: BatchOptions) -> bytes:
    """Compress, put the header before, and set the CRC."""
    section = records if options.codec is Codec.NONE else compress(options.codec, records)
    attributes = int(options.codec)
    max_timestamp_ms = shape.max_timestamp_ms
    if options.append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp_ms = options.append_time_ms
    attributes |= TRANSACTIONAL_BIT if options.transactional else 0
    attributes |= CONTROL_BIT if options.control else 0
    last = options.last_offset_delta
    batch = bytearray(HEADER_BYTES + len(section))
    batch[HEADER_BYTES:] = section
    LAYOUT.pack_into(
        batch,
        0,
        options.base_offset,
        len(batch) - LENGTH_PREFIX_BYTES,
        options.partition_leader_epoch,
        MAGIC,
        0,
        attributes,
        shape.last_offset_delta if last is None else last,
        shape.base_timestamp_ms,
        max_timestamp_ms,
        options.producer_id,
        options.producer_epoch,
        options.base_sequence,
        shape.record_count,
    )
    batch[CRC_OFFSET : CRC_OFFSET + 4] = batch_crc(memoryview(batch)).to_bytes(4, "big")
    return bytes(batch)


# The numbers of murmur2 as Kafka uses it (org.apache.kafka.common.utils.Utils).
SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
SHIFT: Final = 24
_WORD: Final = 0xFFFFFFFF


def murmur2(data: bytes | memoryview) -> int:
    """The hash that Java's producers partition by, as an unsigned number."""
    length = len(data)
    state = SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * MULTIPLIER & _WORD
        word = (word ^ (word >> SHIFT)) * MULTIPLIER & _WORD
        state = (state * MULTIPLIER & _WORD) ^ word
    if length & 3:
        state = (state ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & _WORD
    state = (state ^ (state >> 13)) * MULTIPLIER & _WORD
    return state ^ (state >> 15)


def partition_of(key: bytes, partition_count: int) -> int:
    """Where Kafka's own producers put a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
