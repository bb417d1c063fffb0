"""The compiled kernels of `fetched_batches` and `fetched`; only `fetched_batches.load` imports it.

The data comes as an address: functions that are handed an array count its references, two atomic
steps a call, which took longer than reading a record. Everything is read eight bytes at once, and
every load is within [address, address + size): a record is read quickly where eight bytes are left
for each load and its numbers are short, and else byte by byte with a test at every one.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
from numba import types

from lakelog.records.compiling import (
    READ_ONLY_BYTES,
    called,
    entry,
    inlined,
    loading,
    signed,
    unsigned,
)
from lakelog.records.fetched_batches import FetchedKernels
from lakelog.records.header import LOG_APPEND_TIME_BIT
from lakelog.records.kernels import DONE, INT64_MAX, MALFORMED

if TYPE_CHECKING:
    from lakelog.records.fetched_batches import Columns
    from lakelog.records.kernels import Bytes, Longs

_WRONG: Final = -2

_TABLE: Final = types.Array(types.int64, 2, "C")
_FLAGS: Final = types.Array(types.boolean, 1, "C")
_COLUMNS: Final = types.Tuple(
    (
        _TABLE,
        types.Array(types.int32, 3, "C"),
        _FLAGS,
        _FLAGS,
        types.Array(types.int32, 2, "C"),
    )
)


_byte_at: Final = loading(types.uint8)
_word_at: Final = loading(types.uint64)
_long_at: Final = loading(types.int64, swapped=True)
"""Eight bytes, the first one highest, as headers have their numbers."""


@inlined
def _low_half(long: int) -> int:
    return (long << 32) >> 32


@entry(READ_ONLY_BYTES, _TABLE)
def _walk(data: "Bytes", table: "Longs") -> tuple[int, int, int]:
    address, size = data.ctypes.data, len(data)
    position = count = next_offset = 0
    # Whether a batch is whole is asked as late as `header.first_batch_bytes` asks it.
    while count < table.shape[1] and size - position >= 12:
        start = address + position
        length = _low_half(_long_at(start + 4))
        if length < 14:
            return MALFORMED, count, position
        if size - position <= 16:
            break
        magic = _byte_at(start + 16)
        end = position + length + 12
        if magic > 2 or (end <= size and (magic < 2 or length < 49)):
            return MALFORMED, count, position
        if end > size:
            break
        base_offset, delta = _long_at(start), _long_at(start + 23) >> 32
        if base_offset < next_offset or delta < 0 or base_offset > INT64_MAX - 1 - delta:
            return MALFORMED, count, position
        next_offset = base_offset + delta + 1
        table[0, count] = position
        table[1, count] = end
        table[2, count] = base_offset
        table[3, count] = next_offset
        table[4, count] = _low_half(_long_at(start + 53))
        table[5, count] = _long_at(start + 21) >> 48
        table[6, count] = _long_at(start + 27)
        table[7, count] = _long_at(start + 35)
        table[8, count] = _long_at(start + 43)
        table[9, count] = (_long_at(start + 17) >> 32) & 0xFFFFFFFF
        position = end
        count += 1
    return DONE, count, position


@called
def _read_number(address: int, position: int, end: int, bits: int) -> tuple[int, int]:
    """A number of any width before `end`, and the position after it (or -2)."""
    value = unsigned(0)
    shift = 0
    while position < end and shift < bits:
        byte = unsigned(_byte_at(address + position))
        position += 1
        value |= (byte & unsigned(0x7F)) << unsigned(shift)
        if byte < unsigned(128):
            if (bits == 32 and value >> unsigned(32)) or (shift == 63 and byte > unsigned(1)):
                return 0, _WRONG
            return signed(value >> unsigned(1)) ^ -signed(value & unsigned(1)), position
        shift += 7
    return 0, _WRONG


@inlined
def _short_number(word: int) -> tuple[int, int]:
    """The number of at most four bytes that a word begins with, and its bits (or 0)."""
    value = word & unsigned(0x7F)
    bits = 8
    if word & unsigned(0x80):
        value |= (word >> unsigned(1)) & unsigned(0x7F << 7)
        bits = 16
        if word & unsigned(0x8000):
            value |= (word >> unsigned(2)) & unsigned(0x7F << 14)
            bits = 24
            if word & unsigned(0x800000):
                value |= (word >> unsigned(3)) & unsigned(0x7F << 21)
                bits = 0 if word & unsigned(0x80000000) else 32
    return signed(value >> unsigned(1)) ^ -signed(value & unsigned(1)), bits


_Fields = tuple[int, int, int, int, int, int, int]
"""A record's end (or -2), the deltas of its time and offset, where its key begins and how long it
is (-1 is null), and the same of its value."""


@inlined
def _read_quickly(address: int, size: int, position: int, section_end: int) -> "_Fields":
    """The fields before the headers, or -2 for whatever takes more care, right or wrong."""
    slow = (signed(_WRONG), 0, 0, 0, 0, 0, 0)
    if position + 16 > size:
        return slow
    word = _word_at(address + position)
    length, bits = _short_number(word)
    start = position + (bits >> 3)
    end = start + length
    if bits == 0 or length < 0 or end > section_end:
        return slow
    used = bits + 8
    delta_ms, bits = _short_number(word >> unsigned(used))
    if bits == 0 or used + bits > 64:
        return slow
    position += (used + bits) >> 3
    word = _word_at(address + position)
    delta, used = _short_number(word)
    key_length, bits = _short_number(word >> unsigned(used))
    key_start = position + ((used + bits) >> 3)
    position = key_start + max(key_length, 0)
    if used == 0 or bits == 0 or key_length < -1 or position + 8 > size:
        return slow
    value_length, bits = _short_number(_word_at(address + position))
    if bits == 0 or value_length < -1:
        return slow
    return end, delta_ms, delta, key_start, key_length, position + (bits >> 3), value_length


@called
def _read_carefully(address: int, position: int, section_end: int) -> "_Fields":
    wrong = (_WRONG, 0, 0, 0, 0, 0, 0)
    length, start = _read_number(address, position, section_end, 32)
    if start < 0 or length < 0 or length > section_end - start:
        return wrong
    end = start + length
    delta_ms, position = _read_number(address, start + 1, end, 64)
    if position < 0:
        return wrong
    delta, position = _read_number(address, position, end, 32)
    if position < 0:
        return wrong
    key_length, key_start = _read_number(address, position, end, 32)
    if key_start < 0 or key_length < -1 or key_length > end - key_start:
        return wrong
    value_length, value_start = _read_number(address, key_start + max(key_length, 0), end, 32)
    if value_start < 0 or value_length < -1 or value_length > end - value_start:
        return wrong
    return end, delta_ms, delta, key_start, key_length, value_start, value_length


@called
def _read_headers(address: int, position: int, end: int) -> tuple[int, int]:
    """Where a record's headers begin (or -2) and how many there are; they end with the record."""
    count, position = _read_number(address, position, end, 32)
    if position < 0 or count < 0 or count > end - position:
        return _WRONG, 0
    start = position
    for _ in range(count):
        length, position = _read_number(address, position, end, 32)
        if position < 0 or length < 0 or length > end - position:
            return _WRONG, 0
        length, position = _read_number(address, position + length, end, 32)
        if position < 0 or length < -1 or length > end - position:
            return _WRONG, 0
        position += max(length, 0)
    return (start if position == end else _WRONG), count


@inlined
def _first_bytes(word: int, count: int) -> int:
    """The first 1 to 8 bytes of a word, and zeros after them."""
    missing = unsigned(64 - 8 * count)
    return (word << missing) >> missing


@called
def _last_view(address: int, start: int, length: int) -> tuple[int, int]:
    """The view of a short value where a load of twelve bytes would pass the end."""
    first, second = unsigned(length), unsigned(0)
    for step in range(length):
        byte = unsigned(_byte_at(address + start + step))
        if step < 4:
            first |= byte << unsigned(32 + 8 * step)
        else:
            second |= byte << unsigned(8 * (step - 4))
    return first, second


@inlined
def _view(address: int, size: int, start: int, length: int) -> tuple[int, int]:
    """The two halves of a value's view; null, as the empty value, is all zero."""
    first, second = unsigned(0), unsigned(0)
    if length > 12:
        first = unsigned(length) | (_word_at(address + start) << unsigned(32))
        second = unsigned(start) << unsigned(32)
    elif length > 0 and start + 12 > size:
        first, second = _last_view(address, start, length)
    elif length > 0:
        first = unsigned(length) | (
            _first_bytes(_word_at(address + start), min(length, 4)) << unsigned(32)
        )
        if length > 4:
            second = _first_bytes(_word_at(address + start + 4), length - 4)
    return first, second


@entry(READ_ONLY_BYTES, _TABLE, types.int64, _COLUMNS)
def _fill(data: "Bytes", table: "Longs", from_offset: int, columns: "Columns") -> tuple[int, int]:
    longs, views, key_nulls, value_nulls, headers = columns
    halves = views.view(np.uint64)
    address, size = data.ctypes.data, len(data)
    row = unsigned(0)
    for batch in range(table.shape[1]):
        position, section_end = table[0, batch], table[1, batch]
        base_offset, base_ms = table[2, batch], table[6, batch]
        appended = table[5, batch] & LOG_APPEND_TIME_BIT
        for _ in range(table[4, batch]):
            fields = _read_quickly(address, size, position, section_end)
            if fields[0] < 0:
                fields = _read_carefully(address, position, section_end)
            position, delta_ms, delta, key_start, key_length, value_start, value_length = fields
            value_end = value_start + max(value_length, 0)
            header_start, header_count = position, 0
            if value_end + 1 != position or _byte_at(address + value_end) != 0:
                header_start, header_count = _read_headers(address, value_end, position)
            if header_start < 0 or delta < 0 or delta >= table[3, batch] - base_offset:
                return MALFORMED, batch
            if base_offset + delta < from_offset:
                continue
            longs[0, row] = base_offset + delta
            longs[1, row] = table[7, batch] if appended else base_ms + delta_ms
            halves[0, row, 0], halves[0, row, 1] = _view(address, size, key_start, key_length)
            halves[1, row, 0], halves[1, row, 1] = _view(address, size, value_start, value_length)
            key_nulls[row], value_nulls[row] = key_length < 0, value_length < 0
            if header_count:
                headers[0, row] = header_start
                headers[1, row] = header_count
            row += unsigned(1)
        if position != section_end:
            return MALFORMED, batch
    return DONE, signed(row)


def kernels() -> FetchedKernels:
    """The compiled functions; arrays of bytes must be read-only."""
    return FetchedKernels(_walk, _fill)
