"""The compiled kernels: what `scan`, `columns` and `build` do in pure Python, at memory speed.

Only `kernels.load` imports this module. All kernels release the GIL and are cached on disk by
numba. Positions returned as -1 mean that the data ended, -2 that the bytes are malformed. Shapes
that look odd were measured: one way out of the number's loop, indices cast to unsigned, and the
small functions inlined by numba itself make the scan three times as fast.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numba import types

from lakelog.records.compiling import READ_ONLY_BYTES, called, entry, inlined, signed, unsigned
from lakelog.records.kernels import (
    DONE,
    INCOMPLETE,
    INT64_MAX,
    INT64_MIN,
    MALFORMED,
    MISPLACED,
    NO_TIMESTAMP_MS,
    Kernels,
    Limits,
    ScanOutcome,
)

if TYPE_CHECKING:
    from lakelog.records.kernels import Blobs, Bytes, Ints, Longs

_ENDED: Final = -1
_WRONG: Final = -2

# numba sees numpy's types; to everybody else they are plain integers.
_byte = cast("Callable[[Any], int]", np.uint8)

_INT_ROWS: Final = types.Array(types.int32, 2, "C")
_LONG_ROWS: Final = types.Array(types.int64, 2, "C")


@inlined
def _read_number(data: "Bytes", position: int, end: int, bits: int) -> tuple[int, int]:
    value = unsigned(0)
    shift = unsigned(0)
    byte = unsigned(0)
    after = signed(_ENDED)
    while position < end:
        byte = unsigned(data[unsigned(position)])
        position += 1
        value |= (byte & unsigned(0x7F)) << shift
        if byte < 128:
            after = position
            break
        shift += unsigned(7)
        if shift >= bits:
            after = _WRONG
            break
    if value >> unsigned(32) != 0 and (bits == 32 or (shift == 63 and byte > 1)):
        after = _WRONG
    return signed(value >> unsigned(1)) ^ -signed(value & unsigned(1)), after


@inlined
def _read_blob(data: "Bytes", position: int, end: int) -> tuple[int, int]:
    """A nullable blob's length and the position after it."""
    if position < 0:
        return 0, _WRONG
    length, position = _read_number(data, position, end, 32)
    if position < 0 or length < -1 or length > end - position:
        return 0, _WRONG
    return length, position + max(length, 0)


@called
def _skip_headers(data: "Bytes", position: int, end: int, count: int) -> int:
    for _ in range(count):
        length, position = _read_blob(data, position, end)
        if position < 0 or length < 0:
            return _WRONG
        _, position = _read_blob(data, position, end)
        if position < 0:
            return _WRONG
    return position


@inlined
def _read_fields(
    data: "Bytes", position: int, end: int
) -> tuple[int, int, int, int, int, int, int, int]:
    """One record between its length and its end.

    Where its headers begin (or -2), timestamp and offset delta, key length and end, value length
    and end, header count.
    """
    wrong = (_WRONG, 0, 0, 0, 0, 0, 0, 0)
    delta_ms, position = _read_number(data, position + 1, end, 64)
    if position < 0:
        return wrong
    offset_delta, position = _read_number(data, position, end, 32)
    key_length, key_end = _read_blob(data, position, end)
    value_length, value_end = _read_blob(data, key_end, end)
    if value_end < 0:
        return wrong
    count, position = _read_number(data, value_end, end, 32)
    if position < 0 or count < 0 or count > end - position:
        return wrong
    if (_skip_headers(data, position, end, count) if count else position) != end:
        return wrong
    return position, delta_ms, offset_delta, key_length, key_end, value_length, value_end, count


@inlined
def _record_end(data: "Bytes", position: int) -> tuple[int, int]:
    """Where the record's fields begin, and end; negative when it is not all there."""
    end = len(data)
    length, start = _read_number(data, position, end, 32)
    after = start
    if start >= 0:
        after = start + length
        if length < 0:
            after = signed(_WRONG)
        elif length > end - start:
            after = signed(_ENDED)
    return start, after


@entry(READ_ONLY_BYTES, types.int64, types.int64, types.int64, types.UniTuple(types.int64, 4))
def _scan(data: "Bytes", position: int, index: int, count: int, limits: Limits) -> ScanOutcome:
    base_ms, lower_ms, upper_ms, keyed = limits
    least_ms, greatest_ms, bad = INT64_MAX, INT64_MIN, 0
    while index < count:
        start, end = _record_end(data, position)
        if end < 0:
            verdict = INCOMPLETE if end == _ENDED else MALFORMED
            return verdict, position, index, least_ms, greatest_ms, bad
        headers, delta_ms, offset_delta, key_length, _, _, _, _ = _read_fields(data, start, end)
        if headers < 0:
            return MALFORMED, position, index, least_ms, greatest_ms, bad
        if offset_delta != index:
            return MISPLACED, position, index, least_ms, greatest_ms, bad
        timestamp_ms = base_ms + delta_ms
        least_ms = min(least_ms, timestamp_ms)
        greatest_ms = max(greatest_ms, timestamp_ms)
        outside = timestamp_ms < lower_ms or timestamp_ms > upper_ms
        if (keyed and key_length < 0) or (outside and timestamp_ms != NO_TIMESTAMP_MS):
            bad += 1
        position = end
        index += 1
    return DONE, position, index, least_ms, greatest_ms, bad


@entry(
    READ_ONLY_BYTES,
    types.int64,
    types.Array(types.int64, 1, "C"),
    _INT_ROWS,
)
def _fill_columns(data: "Bytes", base_ms: int, timestamps: "Longs", places: "Ints") -> int:
    position = 0
    for index in range(len(timestamps)):
        start, end = _record_end(data, position)
        if end < 0:
            return INCOMPLETE if end == _ENDED else MALFORMED
        headers, delta_ms, offset_delta, key_length, key_end, value_length, value_end, count = (
            _read_fields(data, start, end)
        )
        if headers < 0:
            return MALFORMED
        timestamps[index] = base_ms + delta_ms
        places[0, index] = offset_delta
        places[1, index] = key_end - key_length if key_length >= 0 else -1
        places[2, index] = key_end if key_length >= 0 else -1
        places[3, index] = value_end - value_length if value_length >= 0 else -1
        places[4, index] = value_end if value_length >= 0 else -1
        places[5, index] = headers
        places[6, index] = count
        position = end
    return DONE if position == len(data) else MALFORMED


@entry(READ_ONLY_BYTES, _INT_ROWS, _INT_ROWS)
def _fill_headers(data: "Bytes", places: "Ints", headers: "Ints") -> None:
    item = 0
    for index in range(places.shape[1]):
        position = signed(places[5, index])
        for _ in range(places[6, index]):
            length, position = _read_blob(data, position, len(data))
            headers[0, item] = position - length
            headers[1, item] = position
            length, position = _read_blob(data, position, len(data))
            headers[2, item] = position - length if length >= 0 else -1
            headers[3, item] = position if length >= 0 else -1
            item += 1


@inlined
def _number_size(value: int) -> int:
    number = unsigned((value << 1) ^ (value >> 63))
    size = 1
    while number > unsigned(0x7F):
        number >>= unsigned(7)
        size += 1
    return size


@inlined
def _write_number(output: "Bytes", position: int, value: int) -> int:
    number = unsigned((value << 1) ^ (value >> 63))
    while number > unsigned(0x7F):
        output[unsigned(position)] = _byte((number & unsigned(0x7F)) | unsigned(0x80))
        number >>= unsigned(7)
        position += 1
    output[unsigned(position)] = _byte(number)
    return position + 1


@inlined
def _blob_size(start: int, end: int) -> int:
    length = end - start if start >= 0 else -1
    return _number_size(length) + max(length, 0)


@called
def _write_blob(output: "Bytes", position: int, data: "Bytes", start: int, end: int) -> int:
    length = end - start if start >= 0 else -1
    position = _write_number(output, position, length)
    for index in range(max(length, 0)):
        output[unsigned(position + index)] = data[unsigned(start + index)]
    return position + max(length, 0)


@called
def _body_size(numbers: "Longs", headers: "Longs", index: int) -> int:
    size = 1 + _number_size(numbers[0, index]) + _number_size(numbers[1, index])
    size += _blob_size(numbers[2, index], numbers[3, index])
    size += _blob_size(numbers[4, index], numbers[5, index])
    size += _number_size(numbers[7, index] - numbers[6, index])
    for header in range(numbers[6, index], numbers[7, index]):
        size += _blob_size(headers[0, header], headers[1, header])
        size += _blob_size(headers[2, header], headers[3, header])
    return size


@entry(
    _LONG_ROWS,
    types.UniTuple(READ_ONLY_BYTES, 4),
    _LONG_ROWS,
    types.Array(types.uint8, 1, "C"),
)
def _write_records(numbers: "Longs", blobs: "Blobs", headers: "Longs", output: "Bytes") -> int:
    keys, values, header_keys, header_values = blobs
    position = 0
    for index in range(numbers.shape[1]):
        position = _write_number(output, position, _body_size(numbers, headers, index))
        output[position] = 0  # a record's own attributes: none are defined
        position = _write_number(output, position + 1, numbers[0, index])
        position = _write_number(output, position, numbers[1, index])
        position = _write_blob(output, position, keys, numbers[2, index], numbers[3, index])
        position = _write_blob(output, position, values, numbers[4, index], numbers[5, index])
        position = _write_number(output, position, numbers[7, index] - numbers[6, index])
        for item in range(numbers[6, index], numbers[7, index]):
            position = _write_blob(
                output, position, header_keys, headers[0, item], headers[1, item]
            )
            position = _write_blob(
                output, position, header_values, headers[2, item], headers[3, item]
            )
    return position


def _scan_buffer(
    data: memoryview, position: int, index: int, count: int, limits: Limits, /
) -> ScanOutcome:
    return _scan(np.frombuffer(data.toreadonly(), np.uint8), position, index, count, limits)


def kernels() -> Kernels:
    """The compiled functions; arrays of bytes must be read-only, as `kernels` says."""
    return Kernels(_scan_buffer, _fill_columns, _fill_headers, _write_records)
