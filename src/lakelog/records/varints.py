"""Zigzag variable-length integers as record batches use them, for pure Python.

Reading is strict: a value that needs more bits than its type has is an error, where Kafka drops the
bits. Encodings longer than needed are read, as Kafka reads them.
"""

from typing import Final

from lakelog.records.header import MalformedBatchError

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
