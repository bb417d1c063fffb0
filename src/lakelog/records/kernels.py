"""The switch between pure Python and compiled kernels.

numba costs about a second and 100 MB, so nothing imports it until somebody calls `load`: a broker
does, on a thread, once traffic has begun. Both sides give the same answers, byte for byte, which a
differential test holds them to; only speed changes. Loading twice is harmless.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]
    Blobs = tuple[Bytes, Bytes, Bytes, Bytes]

Limits: TypeAlias = tuple[int, int, int, int]
"""Base timestamp, least and greatest timestamp allowed, and 1 if every record needs a key."""

ScanOutcome: TypeAlias = tuple[int, int, int, int, int, int]
"""Verdict, position and index after the last good record, least and greatest timestamp, and how
many records broke the limits."""

DONE: Final = 0
"""Every record was read."""

INCOMPLETE: Final = 1
"""The data ends within the record at the returned position."""

MALFORMED: Final = 2
"""The record at the returned index is not a record."""

MISPLACED: Final = 3
"""The record's offset delta is not its index."""

NO_TIMESTAMP_MS: Final = -1
INT64_MAX: Final = (1 << 63) - 1
INT64_MIN: Final = -(1 << 63)


class Scan(Protocol):
    """Reads the records [index, count) that begin at `position`, as far as the data goes."""

    def __call__(
        self, data: memoryview, position: int, index: int, count: int, limits: Limits, /
    ) -> ScanOutcome:
        """Read on."""


class FillColumns(Protocol):
    """Fills the timestamps and the seven rows of `columns.PLACES`; returns a verdict."""

    def __call__(self, data: "Bytes", base_ms: int, timestamps: "Longs", places: "Ints", /) -> int:
        """Fill both; the data is a read-only array."""


class FillHeaders(Protocol):
    """Fills key start and end, value start and end of every header that `places` names."""

    def __call__(self, data: "Bytes", places: "Ints", headers: "Ints", /) -> None:
        """Fill them; the records were read before and are well-formed."""


class WriteRecords(Protocol):
    """Writes records from the packed rows of `build.RecordBlock`; returns the bytes written."""

    def __call__(
        self, numbers: "Longs", blobs: "Blobs", headers: "Longs", output: "Bytes", /
    ) -> int:
        """Write them all; the blobs are read-only arrays and the output is large enough."""


class Kernels(NamedTuple):
    """The compiled functions."""

    scan: Scan
    fill_columns: FillColumns
    fill_headers: FillHeaders
    write_records: WriteRecords


_kernels: Kernels | None = None


COMPILE_COMMAND: Final = (
    sys.executable,
    "-c",
    "from lakelog.records import kernels; kernels.load()",
)
"""What compiles the kernels into their cache on disk, in a process of its own."""


def are_cached() -> bool:
    """Whether somebody compiled them before; if the guess is wrong, `load` takes longer."""
    return any((Path(__file__).parent / "__pycache__").glob("compiled.*.nbi"))


def load() -> Kernels:
    """Import numba, compile or read from its cache, and use the kernels from now on."""
    global _kernels  # noqa: PLW0603 - the one switch of the process; it only ever turns on
    if _kernels is None:
        from lakelog.records import compiled  # noqa: PLC0415 - numba is slow to import

        _kernels = compiled.kernels()
    return _kernels


def loaded() -> Kernels | None:
    """The kernels, if `load` was called."""
    return _kernels
