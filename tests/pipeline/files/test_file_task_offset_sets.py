import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.model.failures import Corrupt
from lakelog.pipeline.files.file_task import are_kept, pack_offsets, unpack_offsets

_OFFSETS = st.sets(st.integers(0, (1 << 63) - 1) | st.integers(0, 50)).map(sorted)


@given(_OFFSETS)
def test_offsets_are_unpacked_as_they_were(offsets: list[int]) -> None:
    found = unpack_offsets(pack_offsets(np.array(offsets, np.int64)))
    assert found.tolist() == offsets


@given(_OFFSETS, _OFFSETS)
def test_those_among_the_kept_are_marked(offsets: list[int], kept: list[int]) -> None:
    marks = are_kept(np.array(offsets, np.int64), np.array(kept, np.int64))
    assert marks.tolist() == [one in set(kept) for one in offsets]


def test_dense_offsets_cost_next_to_nothing() -> None:
    assert len(pack_offsets(np.arange(1 << 40, (1 << 40) + 1_000_000))) < 40_000


def test_offsets_that_do_not_rise_are_a_bug() -> None:
    for bad in ([3, 2], [2, 2], [-1]):
        with pytest.raises(AssertionError):
            pack_offsets(np.array(bad, np.int64))


@given(st.binary(max_size=40))
def test_other_bytes_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        unpack_offsets(data)


def test_half_of_packed_offsets_is_corrupt() -> None:
    whole = pack_offsets(np.arange(1000))
    with pytest.raises(Corrupt):
        unpack_offsets(whole[: len(whole) // 2])
