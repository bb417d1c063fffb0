"""The compiled kernel of `table_views`; only that module imports this one, and only lazily.

As in `compiled`, indices are cast to unsigned: a signed one costs a test for "from the end".
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import numba
import numpy as np
from numba import types

if TYPE_CHECKING:
    from lakelog.records.kernels import Bytes, Ints
    from lakelog.records.table_views import FillViews

_READ_ONLY: Final = types.Array(types.uint8, 1, "C", readonly=True)
_PLACES: Final = types.Array(types.int32, 1, "C")
_SIGNATURE: Final = (_READ_ONLY, _PLACES, _PLACES, types.Array(types.int32, 2, "C"), types.int64)

# numba sees numpy's types; to everybody else they are plain integers.
_unsigned = cast("Callable[[Any], int]", np.uint64)
_word = cast("Callable[[Any], int]", np.uint32)


def _fill(data: "Bytes", starts: "Ints", ends: "Ints", views: "Ints", buffer: int) -> None:
    for index in range(len(starts)):
        row = _unsigned(index)
        length = ends[row] - starts[row]
        start = _unsigned(starts[row])
        views[row, _unsigned(0)] = length
        if length > 12:
            packed = _word(data[start]) | (_word(data[start + _unsigned(1)]) << _word(8))
            packed |= _word(data[start + _unsigned(2)]) << _word(16)
            packed |= _word(data[start + _unsigned(3)]) << _word(24)
            views[row, _unsigned(1)] = packed
            views[row, _unsigned(2)] = buffer
            views[row, _unsigned(3)] = starts[row]
        else:
            first = second = third = _word(0)
            for step in range(length):
                byte = _word(data[start + _unsigned(step)]) << _word(8 * (step & 3))
                if step < 4:
                    first |= byte
                elif step < 8:
                    second |= byte
                else:
                    third |= byte
            views[row, _unsigned(1)] = first
            views[row, _unsigned(2)] = second
            views[row, _unsigned(3)] = third


def _compile() -> "FillViews":
    compiled: FillViews
    try:
        compiled = numba.njit(_SIGNATURE, nogil=True, cache=True)(_fill)
    except RuntimeError:
        # No directory can hold the cache, as in a read-only container: compile every time.
        compiled = numba.njit(_SIGNATURE, nogil=True)(_fill)
    return compiled


fill_views = _compile()
