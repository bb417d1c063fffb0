"""Growable columns: numpy arrays of one length, doubled when full. Pure.

Rows are only added at the end; a table that drops rows makes new columns. The arrays are public
because the callers compute on them; `count` says how many rows are real.
"""

from collections.abc import Mapping
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FIRST_CAPACITY = 64

DEAD_ROWS_MIN: Final = 4096
"""A table is packed when more rows than this, and more than half of all, are dead."""


def is_mostly_dead(dead: int, count: int) -> bool:
    """Whether packing a table of `count` rows would pay: its cost is spread over as many rows."""
    return dead > DEAD_ROWS_MIN and dead * 2 > count


class Columns:
    """Named arrays that grow together."""

    __slots__ = ("arrays", "count")

    def __init__(self, kinds: Mapping[str, npt.DTypeLike], capacity: int = FIRST_CAPACITY) -> None:
        self.arrays: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(capacity, dtype=kind) for name, kind in kinds.items()
        }
        self.count = 0

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """The column's rows, without spare capacity; writing to it writes the column."""
        return self.arrays[name][: self.count]

    def extend(self, rows: int) -> int:
        """Add that many zeroed rows and return the number of the first."""
        first = self.count
        needed = first + rows
        capacity = len(next(iter(self.arrays.values())))
        if needed > capacity:
            grown = max(needed, capacity * 2)
            for name, array in self.arrays.items():
                larger = np.zeros((grown, *array.shape[1:]), dtype=array.dtype)
                larger[:first] = array[:first]
                self.arrays[name] = larger
        self.count = needed
        return first

    def taken(self, rows: npt.NDArray[np.intp]) -> Self:
        """New columns with just these rows, in this order."""
        return self._of({name: array[rows] for name, array in self.arrays.items()}, len(rows))

    def copied(self) -> Self:
        """The same rows in memory of their own."""
        rows = {name: array[: self.count].copy() for name, array in self.arrays.items()}
        return self._of(rows, self.count)

    def _of(self, arrays: dict[str, npt.NDArray[Any]], count: int) -> Self:
        made = type(self).__new__(type(self))
        made.arrays, made.count = arrays, count
        if not count:  # array expressions may look at row 0 and then leave it out
            made.arrays = {
                name: np.zeros((FIRST_CAPACITY, *array.shape[1:]), dtype=array.dtype)
                for name, array in arrays.items()
            }
        return made
