"""The 61-byte header of a record batch v2, and its variable-length integers: parse, walk, patch.

The CRC-32C covers everything from `attributes` to the end. What lies before (base offset, length,
partition leader epoch, magic, and the CRC itself) can change without a new CRC, so a stored batch
is served as 16 fresh bytes and a view of the rest (row 58).

Reading is strict: a value that needs more bits than its type has is an error, where Kafka drops the
bits. Encodings longer than needed are read, as Kafka reads them.
"""

from struct import Struct
from typing import Final

import msgspec

from lakelog.model.ids import LEADER_EPOCH
from lakelog.records.kernels import crc32c

HEADER_BYTES: Final = 61
"""The whole header; the records, perhaps compressed, follow it."""

LENGTH_PREFIX_BYTES: Final = 12
"""Base offset and length: what the length field does not count."""

PATCHED_BYTES: Final = 16
"""Base offset, length and partition leader epoch: what is written anew when a batch is served."""

MAGIC_OFFSET: Final = 16
CRC_OFFSET: Final = 17
ATTRIBUTES_OFFSET: Final = 21
"""Where the CRC's region begins; it ends with the batch."""

MAX_TIMESTAMP_OFFSET: Final = 35
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20

LAYOUT: Final = Struct(">qiibIhiqqqhii")
"""All thirteen fields in order; `BatchHeader` names them."""

_PATCH: Final = Struct(">qii")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_TIMESTAMP: Final = Struct(">q")


class BatchError(Exception):
    """The base of what reading a batch can raise."""


class MalformedBatchError(BatchError):
    """Bytes that are not a record batch, or records that are not what their header says."""


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The header's fields as they stand on the wire."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch with its length prefix."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def codec(self) -> int:
        """The compression of the records, 0 to 7; `codecs.Codec` names 0 to 4."""
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """Whether every record's timestamp is the header's max timestamp."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def control(self) -> bool:
        """Whether the batch holds a marker and not records of a user."""
        return bool(self.attributes & CONTROL_BIT)


def parse_header(batch: memoryview) -> BatchHeader:
    """The header of the batch that begins here; only its own length is checked."""
    if len(batch) < HEADER_BYTES:
        raise MalformedBatchError(f"a batch header is 61 bytes, here are {len(batch)}")
    return BatchHeader(*LAYOUT.unpack_from(batch))


def batch_crc(batch: memoryview) -> int:
    """The CRC-32C of exactly one batch, from its attributes to its end."""
    return crc32c(batch[ATTRIBUTES_OFFSET:])


def first_batch_bytes(data: memoryview) -> int:
    """The size of the batch of any version that `data` begins with; 0 when it is not all there.

    Raises when the length or the magic can be no batch's, as Kafka's reader does.
    """
    if len(data) < LENGTH_PREFIX_BYTES:
        return 0
    length = int.from_bytes(data[8:LENGTH_PREFIX_BYTES], "big", signed=True)
    if length < 14:  # the least message of version 0
        raise MalformedBatchError(f"a batch cannot be {length} bytes long")
    if len(data) <= MAGIC_OFFSET:
        return 0
    if data[MAGIC_OFFSET] > MAGIC:
        raise MalformedBatchError(f"no batch has magic {data[MAGIC_OFFSET]}")
    size = length + LENGTH_PREFIX_BYTES
    return size if size <= len(data) else 0


def split_batches(data: memoryview) -> list[memoryview]:
    """The whole v2 batches of `data`, one view each; a partial batch at the end is left out.

    This is how a Fetch answer is read. The CRC is not checked.
    """
    batches = []
    position = 0
    while size := first_batch_bytes(data[position:]):
        if size < HEADER_BYTES or data[position + MAGIC_OFFSET] != MAGIC:
            raise MalformedBatchError(f"no batch of version 2 at byte {position}")
        batches.append(data[position : position + size])
        position += size
    return batches


def patch(
    batch: memoryview, *, base_offset: int, leader_epoch: int = LEADER_EPOCH
) -> tuple[bytes, memoryview]:
    """The two parts that serve one stored batch at `base_offset`; the body is not copied."""
    length = len(batch) - LENGTH_PREFIX_BYTES
    return _PATCH.pack(base_offset, length, leader_epoch), batch[PATCHED_BYTES:]


def restamp(batch: memoryview, *, attributes: int, max_timestamp_ms: int) -> memoryview:
    """A copy of the batch with other attributes and max timestamp, and the CRC that fits them."""
    copy = bytearray(batch)
    _ATTRIBUTES.pack_into(copy, ATTRIBUTES_OFFSET, attributes)
    _TIMESTAMP.pack_into(copy, MAX_TIMESTAMP_OFFSET, max_timestamp_ms)
    view = memoryview(copy)
    _CRC.pack_into(copy, CRC_OFFSET, batch_crc(view))
    return view.toreadonly()


def is_transactional(data: memoryview) -> bool:
    """Whether the first batch says that it is part of a transaction.

    A Produce request with one such batch is refused whole, before any batch is looked at
    (row 64).
    """
    return (
        len(data) > ATTRIBUTES_OFFSET + 1
        and data[MAGIC_OFFSET] == MAGIC
        and bool(data[ATTRIBUTES_OFFSET + 1] & TRANSACTIONAL_BIT)
    )


VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10

_SINGLE: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(128))
"""Most varints are one byte: their value by that byte."""


class IncompleteError(MalformedBatchError):
    """The bytes end within a number or within a record."""


def read_varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """The signed 32-bit value at `position` and the position after it."""
    if position >= end:
        raise IncompleteError("the data ends before a number")
    byte = data[position]
    if byte < 128:
        return _SINGLE[byte], position + 1
    if position + 1 < end and (second := data[position + 1]) < 128:
        value = byte & 0x7F | second << 7
        return (value >> 1) ^ -(value & 1), position + 2
    return _read_long(data, position, end, 32)


def read_varlong(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """The signed 64-bit value at `position` and the position after it."""
    if position >= end:
        raise IncompleteError("the data ends before a number")
    byte = data[position]
    if byte < 128:
        return _SINGLE[byte], position + 1
    if position + 1 < end and (second := data[position + 1]) < 128:
        value = byte & 0x7F | second << 7
        return (value >> 1) ^ -(value & 1), position + 2
    return _read_long(data, position, end, 64)


def _read_long(data: memoryview, position: int, end: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    while shift < bits:
        if position >= end:
            raise IncompleteError("the data ends within a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value >> bits:
                break
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise MalformedBatchError(f"a number needs more than {bits} bits")


def write_varint(output: bytearray, value: int) -> None:
    """Append the value in its shortest form."""
    number = (value << 1) ^ (value >> 63)
    while number > 0x7F:
        output.append((number & 0x7F) | 0x80)
        number >>= 7
    output.append(number)


def varint_bytes(value: int) -> int:
    """How many bytes the value's shortest form has."""
    number = (value << 1) ^ (value >> 63)
    return max(1, (number.bit_length() + 6) // 7)
