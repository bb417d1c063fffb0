"""The compiled kernels of `ordering`; only its `load` imports this module.

Sorting is by digits from the lowest up: rows of sixty partitions that were read together lie within
seconds, so two passes over one word a row (the time since the least, the source, the row) do it.
Columns are read by address, as `ordering` says. As in `compiled`, indices are cast to unsigned.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
from numba import types

from lakelog.records.compiling import called, entry, loading, signed, unsigned
from lakelog.records.kernels import INT64_MAX, INT64_MIN
from lakelog.records.ordering import INDEX, INLINE_BYTES, ORDER, TIMESTAMPS, OrderingKernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.records.kernels import Ints, Longs
    from lakelog.records.ordering import Flags

    Words = NDArray[np.uint64]

_DIGIT_BITS_MAX: Final = 11
"""A table of 2048 counts fits the first cache."""

_FEW_ROWS: Final = 4096
_FEW_DIGIT_BITS_MAX: Final = 8
"""With few rows, clearing a larger table would take longer than another pass."""

_LOW_WORD: Final = 0xFFFF_FFFF

_INTS: Final = types.Array(types.int32, 1, "C")
_LONGS: Final = types.Array(types.int64, 1, "C")
_LONG_ROWS: Final = types.Array(types.int64, 2, "C")
_FLAGS: Final = types.Array(types.boolean, 1, "C")

_long_at = loading(types.int64)
_int_at = loading(types.int32)
_byte_at = loading(types.uint8)


@called
def _bit_length(value: int) -> int:
    bits = 0
    rest = unsigned(value)
    while rest:
        rest >>= unsigned(1)
        bits += 1
    return bits


@called
def _sorted_words(words: "Words", shift: int, bits: int) -> "Words":
    """The words, sorted by these bits; equal ones stay as they stand."""
    few = len(words) < _FEW_ROWS
    digit_bits_max = _FEW_DIGIT_BITS_MAX if few else _DIGIT_BITS_MAX
    passes = (bits + digit_bits_max - 1) // digit_bits_max
    if passes == 0:
        return words
    digit_bits = (bits + passes - 1) // passes
    mask = (unsigned(1) << unsigned(digit_bits)) - unsigned(1)
    places = np.empty(1 << digit_bits, np.int64)
    spare = np.empty_like(words)
    for number in range(passes):
        low = unsigned(shift + number * digit_bits)
        places[:] = 0
        for row in range(len(words)):
            places[(words[unsigned(row)] >> low) & mask] += 1
        place = 0
        for digit in range(len(places)):
            count = places[unsigned(digit)]
            places[unsigned(digit)] = place
            place += count
        for row in range(len(words)):
            word = words[unsigned(row)]
            digit = (word >> low) & mask
            spare[unsigned(places[digit])] = word
            places[digit] += 1
        words, spare = spare, words
    return words


@entry(_LONGS, _INTS)
def _stable_order(timestamps_ms: "Longs", order: "Ints") -> bool:
    count = len(timestamps_ms)
    if count == 0:
        return True
    least, greatest = INT64_MAX, INT64_MIN
    for row in range(count):
        least = min(least, timestamps_ms[unsigned(row)])
        greatest = max(greatest, timestamps_ms[unsigned(row)])
    row_bits = _bit_length(count)
    bits = _bit_length(unsigned(greatest) - unsigned(least))
    if row_bits + bits > 63:
        return False
    words: Words = np.empty(count, np.uint64)
    for row in range(count):
        time = unsigned(timestamps_ms[unsigned(row)]) - unsigned(least)
        words[unsigned(row)] = (time << unsigned(row_bits)) | unsigned(row)
    words = _sorted_words(words, row_bits, bits)
    mask = (unsigned(1) << unsigned(row_bits)) - unsigned(1)
    for row in range(count):
        order[unsigned(row)] = words[unsigned(row)] & mask
    return True


@called
def _count_below(address: int, start: int, end: int, timestamp_ms: int) -> int:
    """The first place in [start, end) whose timestamp is not below this one."""
    # In steps that double: what is wanted is mostly near the start, and memory far off is slow.
    step = 1
    while start + step <= end and _long_at(address + 8 * (start + step - 1)) < timestamp_ms:
        start += step
        step += step
    end = min(end, start + step - 1)
    while start < end:
        middle = (start + end) >> 1
        if _long_at(address + 8 * middle) < timestamp_ms:
            start = middle + 1
        else:
            end = middle
    return start


@called
def _count_until(address: int, start: int, end: int, timestamp_ms: int) -> int:
    """The first place in [start, end) whose timestamp is above this one."""
    if timestamp_ms == INT64_MAX:
        return end
    return _count_below(address, start, end, timestamp_ms + 1)


@called
def _guesses(table: "Longs", spans: "Longs", rows_max: int) -> tuple[int, int]:
    """The least and the greatest timestamp at which sources have given their share of the rows."""
    least, greatest = INT64_MAX, INT64_MIN
    share = rows_max // table.shape[0]
    for number in range(table.shape[0]):
        if spans[0, number] < spans[1, number]:
            place = min(spans[0, number] + share, spans[1, number] - 1)
            timestamp_ms = _long_at(table[number, TIMESTAMPS] + 8 * place)
            least = min(least, timestamp_ms)
            greatest = max(greatest, timestamp_ms)
    return least, greatest


@called
def _bounds(table: "Longs", spans: "Longs") -> tuple[int, int]:
    """The least and the greatest timestamp of all rows in these spans."""
    least, greatest = INT64_MAX, INT64_MIN
    for number in range(table.shape[0]):
        start, end = spans[0, number], spans[1, number]
        if start < end:
            least = min(least, _long_at(table[number, TIMESTAMPS] + 8 * start))
            greatest = max(greatest, _long_at(table[number, TIMESTAMPS] + 8 * (end - 1)))
    return least, greatest


@called
def _last_timestamp(table: "Longs", spans: "Longs", rows_max: int) -> int:
    """The timestamp of the last of the least `rows_max` rows; there are more than so many."""
    lower, upper = spans[0].copy(), spans[1].copy()
    places = np.empty_like(lower)
    least, greatest = _bounds(table, spans)
    low_guess, high_guess = _guesses(table, spans, rows_max)
    # Places below `lower` hold rows before `least`, those from `upper` on rows after `greatest`.
    attempt = 0
    while least < greatest:
        half = least + signed((unsigned(greatest) - unsigned(least)) >> unsigned(1))
        if attempt == 0 and least <= high_guess < greatest:
            half = high_guess
        elif attempt == 1 and least <= low_guess - 1 < greatest:
            half = low_guess - 1
        attempt += 1
        total = 0
        for number in range(len(lower)):
            address = table[number, TIMESTAMPS]
            places[number] = _count_until(address, lower[number], upper[number], half)
            total += places[number] - spans[0, number]
        if total >= rows_max:
            greatest = half
            upper, places = places, upper
        else:
            least = half + 1
            lower, places = places, lower
    return least


@entry(_LONG_ROWS, _LONG_ROWS, types.UniTuple(types.int64, 2), types.int64)
def _choose(table: "Longs", spans: "Longs", limit: tuple[int, int], rows_max: int) -> int:
    limit_ms, limit_index = limit
    total = 0
    for number in range(table.shape[0]):
        address, start, end = table[number, TIMESTAMPS], spans[0, number], spans[1, number]
        if table[number, INDEX] <= limit_index:
            spans[1, number] = _count_until(address, start, end, limit_ms)
        else:
            spans[1, number] = _count_below(address, start, end, limit_ms)
        total += spans[1, number] - start
    if total <= rows_max:
        return total
    last_ms = _last_timestamp(table, spans, rows_max)
    left = rows_max
    for number in range(table.shape[0]):
        address, start, end = table[number, TIMESTAMPS], spans[0, number], spans[1, number]
        left -= _count_below(address, start, end, last_ms) - start
    # Of the rows at the last timestamp, those of the first sources come first.
    for number in range(table.shape[0]):
        address, start, end = table[number, TIMESTAMPS], spans[0, number], spans[1, number]
        below = _count_below(address, start, end, last_ms)
        equal = min(left, _count_until(address, below, end, last_ms) - below)
        spans[1, number] = below + equal
        left -= equal
    return rows_max


@entry(_LONG_ROWS, _LONG_ROWS, _INTS, _INTS, _LONGS)
def _merge(
    table: "Longs", spans: "Longs", numbers: "Ints", rows: "Ints", times_ms: "Longs"
) -> bool:
    if len(rows) == 0:
        return True
    least, greatest = _bounds(table, spans)
    place_bits, number_bits = _bit_length(spans[1].max()), _bit_length(table.shape[0])
    low_bits = place_bits + number_bits
    bits = _bit_length(unsigned(greatest) - unsigned(least))
    if low_bits + bits > 63:
        return False
    words: Words = np.empty(len(rows), np.uint64)
    row = 0
    for number in range(table.shape[0]):
        address, low = table[number, TIMESTAMPS], unsigned(number) << unsigned(place_bits)
        for place in range(spans[0, number], spans[1, number]):
            time = unsigned(_long_at(address + 8 * place)) - unsigned(least)
            words[unsigned(row)] = (time << unsigned(low_bits)) | low | unsigned(place)
            row += 1
    words = _sorted_words(words, low_bits, bits)
    place_mask = (unsigned(1) << unsigned(place_bits)) - unsigned(1)
    number_mask = (unsigned(1) << unsigned(number_bits)) - unsigned(1)
    for row in range(len(rows)):
        word = words[unsigned(row)]
        number = (word >> unsigned(place_bits)) & number_mask
        place = signed(word & place_mask)
        order = table[number, unsigned(ORDER)]
        numbers[unsigned(row)] = number
        rows[unsigned(row)] = _int_at(order + 4 * place) if order else place
        times_ms[unsigned(row)] = signed((word >> unsigned(low_bits)) + unsigned(least))
    return True


@entry(_LONG_ROWS, types.int64, _INTS, _INTS, _LONGS)
def _gather_longs(
    table: "Longs", field: int, numbers: "Ints", rows: "Ints", output: "Longs"
) -> None:
    for row in range(len(rows)):
        address = table[unsigned(numbers[unsigned(row)]), unsigned(field)]
        output[unsigned(row)] = _long_at(address + 8 * signed(rows[unsigned(row)]))


@entry(_LONG_ROWS, types.int64, _INTS, _INTS, _LONG_ROWS)
def _gather_views(
    table: "Longs", field: int, numbers: "Ints", rows: "Ints", output: "Longs"
) -> None:
    for row in range(len(rows)):
        number = unsigned(numbers[unsigned(row)])
        address = table[number, unsigned(field)] + 16 * signed(rows[unsigned(row)])
        first, second = unsigned(_long_at(address)), unsigned(_long_at(address + 8))
        if first & unsigned(_LOW_WORD) > INLINE_BYTES:
            second = (second & ~unsigned(_LOW_WORD)) | number
        output[unsigned(row), unsigned(0)] = signed(first)
        output[unsigned(row), unsigned(1)] = signed(second)


@entry(_LONG_ROWS, types.int64, _INTS, _INTS, _FLAGS)
def _gather_flags(
    table: "Longs", field: int, numbers: "Ints", rows: "Ints", output: "Flags"
) -> None:
    for row in range(len(rows)):
        address = table[unsigned(numbers[unsigned(row)]), unsigned(field)]
        if address:
            output[unsigned(row)] = _byte_at(address + signed(rows[unsigned(row)])) != 0


def kernels() -> OrderingKernels:
    """The compiled functions; all read the arrays of sources that the caller keeps."""
    return OrderingKernels(
        _stable_order, _choose, _merge, _gather_longs, _gather_views, _gather_flags
    )
