"""The compiled kernel of `table_rows`; only that module imports this one, and only lazily.

As in `compiled`, indices are cast to unsigned: a signed one costs a test for "from the end".
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numba import types

from lakelog.records.compiling import READ_ONLY_BYTES, entry, unsigned

if TYPE_CHECKING:
    from lakelog.records.kernels import Bytes, Ints

_PLACES: Final = types.Array(types.int32, 1, "C")
_VIEWS: Final = types.Array(types.int32, 2, "C")

# numba sees numpy's types; to everybody else they are plain integers.
_word = cast("Callable[[Any], int]", np.uint32)


@entry(READ_ONLY_BYTES, _PLACES, _PLACES, _VIEWS, types.int64)
def fill_views(data: "Bytes", starts: "Ints", ends: "Ints", views: "Ints", buffer: int) -> None:
    """Fill the view of every place in `data`, as `table_rows.FillViews` says."""
    for index in range(len(starts)):
        row = unsigned(index)
        length = ends[row] - starts[row]
        start = unsigned(starts[row])
        views[row, unsigned(0)] = length
        if length > 12:
            packed = _word(data[start]) | (_word(data[start + unsigned(1)]) << _word(8))
            packed |= _word(data[start + unsigned(2)]) << _word(16)
            packed |= _word(data[start + unsigned(3)]) << _word(24)
            views[row, unsigned(1)] = packed
            views[row, unsigned(2)] = buffer
            views[row, unsigned(3)] = starts[row]
        else:
            first = second = third = _word(0)
            for step in range(length):
                byte = _word(data[start + unsigned(step)]) << _word(8 * (step & 3))
                if step < 4:
                    first |= byte
                elif step < 8:
                    second |= byte
                else:
                    third |= byte
            views[row, unsigned(1)] = first
            views[row, unsigned(2)] = second
            views[row, unsigned(3)] = third
