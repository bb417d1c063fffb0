"""The compiled hash of `record_batches`; only that module imports this one, and only lazily.

As in `lakelog.records.compiled`, indices are cast to unsigned: a signed one costs a test.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import numba
import numpy as np
from numba import types

from lakelog.lake.write.record_batches import HashKernel
from lakelog.records.build import MULTIPLIER, SEED, SHIFT

if TYPE_CHECKING:
    from lakelog.lake.write.record_batches import Hashes
    from lakelog.records.kernels import Bytes, Longs

_PLACES: Final = types.Array(types.int64, 1, "C")
_SIGNATURE: Final = (
    types.Array(types.uint8, 1, "C", readonly=True),
    _PLACES,
    _PLACES,
    types.Array(types.uint32, 1, "C"),
)

# numba sees numpy's types; to everybody else they are plain integers.
_unsigned = cast("Callable[[Any], int]", np.uint64)
_word = cast("Callable[[Any], int]", np.uint32)


def _hash(data: "Bytes", starts: "Longs", ends: "Longs", hashes: "Hashes") -> None:
    multiplier = _word(MULTIPLIER)
    for index in range(len(starts)):
        row = _unsigned(index)
        at = _unsigned(starts[row])
        length = _unsigned(ends[row]) - at
        state = _word(_word(SEED) ^ _word(length))
        for _ in range(length >> _unsigned(2)):
            word = _word(data[at]) | (_word(data[at + _unsigned(1)]) << _word(8))
            word |= _word(data[at + _unsigned(2)]) << _word(16)
            word |= _word(data[at + _unsigned(3)]) << _word(24)
            word = _word(word * multiplier)
            word = _word(_word(word ^ (word >> _word(SHIFT))) * multiplier)
            state = _word(_word(state * multiplier) ^ word)
            at += _unsigned(4)
        left = length & _unsigned(3)
        if left:
            tail = _word(data[at])
            if left > _unsigned(1):
                tail |= _word(data[at + _unsigned(1)]) << _word(8)
            if left > _unsigned(2):
                tail |= _word(data[at + _unsigned(2)]) << _word(16)
            state = _word(_word(state ^ tail) * multiplier)
        state = _word(_word(state ^ (state >> _word(13))) * multiplier)
        hashes[row] = _word(state ^ (state >> _word(15)))


def _compile() -> HashKernel:
    compiled: HashKernel
    try:
        compiled = numba.njit(_SIGNATURE, nogil=True, cache=True)(_hash)
    except RuntimeError:
        # No directory can hold the cache, as in a read-only container: compile every time.
        compiled = numba.njit(_SIGNATURE, nogil=True)(_hash)
    return compiled


hash_places = _compile()
