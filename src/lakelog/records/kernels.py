"""The compiled kernels, or that there are none: the one place that knows.

The kernels are loops over bytes in C (native/*.c), built into the module `lakelog._native`. Where
no C compiler was found when the package was built there is no such module, and `native` is None:
then the twins in Python do the work, more slowly. Both sides give the same answers, byte for byte,
which differential tests and fuzzers hold them to. Whoever has both asks at every call:

    native = kernels.native
    scan = scan_in_python if native is None else native.scan

so a test runs the twins by setting `native` to None. Rules of kernels:

- Arguments are integers and buffers, and what a kernel fills is the caller's.
- Whatever is passed, it refuses what it cannot read: by `ValueError` what is of the right kind.
- Of bytes that are wrong it returns a verdict, where its twin may raise.
"""

from typing import TYPE_CHECKING, Final, TypeAlias, cast

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from lakelog._native import Native

    Bytes = NDArray[np.uint8]
    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Blobs = tuple[Bytes, Bytes, Bytes, Bytes]
    Columns = tuple[Longs, Ints, Flags, Flags, Ints]
    """Offsets and timestamps; views of keys and values; null keys; null values; headers' starts
    and counts."""

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

FREED_BYTES_KEPT: Final = 64 << 20
"""Memory that is not given back: frames, objects and row groups of megabytes come and go all the
time, and fresh pages cost as much as writing them twice."""

NO_TIMESTAMP_MS: Final = -1
INT64_MAX: Final = (1 << 63) - 1
INT64_MIN: Final = -(1 << 63)


def wrap_int64(value: int) -> int:
    """The value as 64-bit arithmetic leaves it."""
    if INT64_MIN <= value <= INT64_MAX:
        return value
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def _load() -> "tuple[Native | None, str]":
    try:
        from lakelog import _native  # noqa: PLC0415 - it may not be there
    except ImportError as reason:
        return None, str(reason)
    return cast("Native", _native), ""


native: "Native | None"
"""The functions of `lakelog._native`; None where it was not built."""

missing_because: str
"""Why it could not be imported, empty if it was."""

native, missing_because = _load()


def crc32c(data: "Buffer", crc: int = 0) -> int:
    """The CRC-32C of the data, or of what `crc` is the sum of with the data behind it."""
    if native is not None:
        return native.crc32c(data, crc)
    # The library imports a command line and more: 17 ms, a twelfth of a consumer's start.
    import crc32c as library  # noqa: PLC0415 - as above

    return library.crc32c(data, crc)


def keep_freed_memory() -> None:
    """Have this process keep so much of the memory that it frees, where its allocator can."""
    if native is not None:
        native.keep_freed_memory(FREED_BYTES_KEPT)
