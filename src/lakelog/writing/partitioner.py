"""Which partition a record goes to, without a loop over records in Python. Pure.

Rules:

- A partition that the row names is taken.
- Else the key decides, by the hash of the Java client: murmur2, as a positive number, modulo the
  number of partitions. So a key is where every producer of the Java family puts it.
- Without a key the value decides, by the same hash; a row with neither goes to partition 0. Kafka's
  clients spread such rows by chance. Here the content decides, because a batch that is written
  again, in another order or cut into other tasks, must send every row to the domain that may have
  taken it before: only then does refusing a version twice mean that each row is there once.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from lakelog.records import kernels
from lakelog.writing.columns import BadRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.records.build import RecordBlock
    from lakelog.records.kernels import Bytes, Longs

    Hashes = NDArray[np.uint32]

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
SHIFT: Final = 24

_WORD: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


class Hash(Protocol):
    """Fills the murmur2 of every place [start, end) in `data`."""

    def __call__(self, data: "Bytes", starts: "Longs", ends: "Longs", hashes: "Hashes", /) -> None:
        """Fill all of them; the data is a read-only array, no place is null."""


def chosen_partitions(
    block: "RecordBlock", given: "Longs | None", *, topic: str, count: int
) -> "Longs":
    """The partition of every record; `given` is what rows name, below 0 where they name none."""
    if given is None:
        return _hashed_partitions(block, count)
    wrong = given >= count
    if wrong.any():
        raise BadRow(
            f"a row names partition {given[wrong][0]} of the topic {topic}, which has {count}"
        )
    unnamed = given < 0
    if not unnamed.any():
        return given
    return np.where(unnamed, _hashed_partitions(block, count), given)


def murmur2(data: bytes | memoryview) -> int:
    """The hash that Java's producers partition by, as an unsigned number."""
    length = len(data)
    state = SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * MULTIPLIER & _WORD
        word = (word ^ (word >> SHIFT)) * MULTIPLIER & _WORD
        state = (state * MULTIPLIER & _WORD) ^ word
    if length & 3:
        state = (state ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & _WORD
    state = (state ^ (state >> 13)) * MULTIPLIER & _WORD
    return state ^ (state >> 15)


def hash_in_python(data: "Bytes", starts: "Longs", ends: "Longs", hashes: "Hashes", /) -> None:
    """The kernel's twin."""
    view = data.data
    for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        hashes[at] = murmur2(view[start:end])


def _hashed_partitions(block: "RecordBlock", count: int) -> "Longs":
    numbers = block.numbers
    partitions = np.zeros(numbers.shape[1], np.int64)
    if count == 1:
        return partitions
    has_key = numbers[2] >= 0
    has_only_value = ~has_key & (numbers[4] >= 0)
    for rows, blob, start in ((has_key, 0, 2), (has_only_value, 1, 4)):
        if rows.all():
            return _positive(block, blob, numbers[start], numbers[start + 1]) % count
        if rows.any():
            starts, ends = numbers[start][rows], numbers[start + 1][rows]
            partitions[rows] = _positive(block, blob, starts, ends) % count
    return partitions


def _positive(block: "RecordBlock", blob: int, starts: "Longs", ends: "Longs") -> "Longs":
    hashes = np.empty(len(starts), np.uint32)
    compute = hash_in_python if kernels.loaded() is None else _compiled()
    compute(block.blobs[blob], np.ascontiguousarray(starts), np.ascontiguousarray(ends), hashes)
    return (hashes & _POSITIVE).astype(np.int64)


@lru_cache(maxsize=1)
def _compiled() -> Hash:
    from lakelog.writing import partitioner_compiled  # noqa: PLC0415 - numba is slow to import

    return partitioner_compiled.hash_places
