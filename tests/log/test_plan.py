"""Batches cut from runs: whole, from an offset on, within the bytes; alike in both languages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.data_stage import batch
from tests.sides import native, side

from lakelog.log.cache import CachedObject, Run, run_behind_lengths, run_of
from lakelog.log.plan import COPIED_BYTES_MAX, BatchCut, cut_in_python
from lakelog.model.ids import LEADER_EPOCH
from lakelog.records.header import parse_header, split_batches
from lakelog.wal.layout import PREFIX

SIZES = st.lists(st.sampled_from((1, 10, 500, COPIED_BYTES_MAX, 20_000)), max_size=6)


def run_of_sizes(sizes: list[int]) -> Run:
    """Batches of two records, the first of that size."""
    return run_of([batch(bytes(size), b"x") for size in sizes])


@given(SIZES, st.integers(0, 14), st.sampled_from((0, 100, 700, 9_000, 50_000)), st.booleans())
def test_kernel_and_twin_cut_the_same(
    sizes: list[int], offset: int, bytes_max: int, must: bool
) -> None:
    run = run_of_sizes(sizes)
    rules = (100, 100 + offset, bytes_max, int(must), LEADER_EPOCH, COPIED_BYTES_MAX)
    arguments = (run.data, run.starts, run.ends, run.offset_counts, rules)
    assert native().cut_batches(*arguments) == cut_in_python(*arguments)


@pytest.mark.parametrize("compiled", [False, True])
@given(SIZES, st.integers(0, 14), st.sampled_from((0, 700, 50_000)), st.booleans())
def test_what_is_cut_is_whole_batches_at_their_offsets(
    compiled: bool, sizes: list[int], offset: int, bytes_max: int, must: bool
) -> None:
    run = run_of_sizes(sizes)
    cut = BatchCut(100 + offset, bytes_max=bytes_max, at_least_one=must)
    with side(compiled):
        cut.take(run, 100)
    served = split_batches(memoryview(b"".join(bytes(part) for part in cut.parts)))
    assert sum(map(len, served)) == cut.size_bytes
    first = min(offset // 2, len(sizes))
    wanted = run.batches[first : first + len(served)]
    for number, (sent, stored) in enumerate(zip(served, wanted, strict=True)):
        assert parse_header(sent).base_offset == 100 + 2 * (first + number)
        assert parse_header(sent).partition_leader_epoch == LEADER_EPOCH
        assert sent[16:] == stored[16:]
    assert cut.full == (first + len(served) < len(sizes))
    assert cut.size_bytes <= bytes_max or (must and len(served) == 1)
    if must and first < len(sizes):
        assert served


def test_batches_behind_their_lengths_are_found_without_a_copy() -> None:
    batches = [batch(bytes(size)) for size in (5, 300, 40)]
    data = b"".join(PREFIX.pack(len(one)) + bytes(one) for one in batches)
    run = run_behind_lengths(memoryview(data), batches)
    assert run.batches == batches
    assert run.offset_counts.tolist() == [1, 1, 1]
    assert run.size_bytes == sum(map(len, batches))
    cached = CachedObject(memoryview(data), run.starts, run.ends, run.offset_counts)
    start = PREFIX.size + len(batches[0])
    part = cached.run(start, len(data) - start)
    assert part.batches == batches[1:]
    assert part.size_bytes == sum(map(len, batches[1:]))
    assert cached.run(0, start).batches == batches[:1]


def test_the_kernel_refuses_batches_outside_the_data() -> None:
    one = np.ones(1, np.int64)
    rules = (0, 0, 1_000, 1, 0, 8_192)
    for start, end in ((-1, 80), (0, 101), (0, 60), (50, 20), (-(1 << 63), 1 << 62)):
        with pytest.raises(ValueError, match="batch"):
            native().cut_batches(bytes(100), one * start, one * end, one, rules)
    with pytest.raises(ValueError, match="batch"):
        native().cut_batches(bytes(100), one * 0, one * 80, -one, rules)
    with pytest.raises(ValueError, match="batch"):
        native().cut_batches(bytes(100), np.zeros(2, np.int64), one, one, rules)
