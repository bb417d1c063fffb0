from hypothesis import given
from hypothesis import strategies as st

from lakelog.pipeline.files.file_task import BinOptions, pack

OPTIONS = BinOptions()
MIB = 1 << 20


def test_no_task_makes_no_bin() -> None:
    assert pack([], slots=2, options=OPTIONS) == ()


def test_a_thousand_tiny_streams_make_a_few_bins_of_equal_work() -> None:
    bins = pack([1000] * 1000, slots=2, options=OPTIONS)
    assert len(bins) == 6
    assert {len(one) for one in bins} == {166, 167}


def test_little_work_makes_one_bin() -> None:
    assert pack([1000] * 20, slots=8, options=OPTIONS) == (tuple(range(20)),)


def test_large_tasks_have_a_bin_each_while_there_are_slots() -> None:
    assert pack([256 * MIB] * 4, slots=2, options=OPTIONS) == ((0,), (1,), (2,), (3,))


def test_one_large_task_does_not_wait_behind_small_ones() -> None:
    bins = pack([MIB] * 100 + [512 * MIB], slots=2, options=OPTIONS)
    (heavy,) = [one for one in bins if 100 in one]
    assert heavy == (100,)


@given(
    st.lists(st.integers(0, 1 << 30), min_size=1, max_size=60),
    st.integers(1, 8),
    st.integers(1, 4),
)
def test_every_task_is_in_one_bin_and_bins_are_few_and_balanced(
    sizes: list[int], slots: int, per_slot: int
) -> None:
    options = BinOptions(bins_per_slot_max=per_slot)
    bins = pack(sizes, slots=slots, options=options)
    assert sorted(place for one in bins for place in one) == list(range(len(sizes)))
    assert all(one and list(one) == sorted(one) for one in bins)
    assert len(bins) <= min(slots * per_slot, len(sizes))
    costs = [options.task_ms + size // options.bytes_per_ms for size in sizes]
    loads = [sum(costs[place] for place in one) for one in bins]
    assert max(loads) <= sum(costs) / len(bins) + max(costs)


def test_work_that_is_worth_it_uses_every_slot() -> None:
    assert len(pack([20 * MIB] * 8, slots=2, options=OPTIONS)) == 2
    assert len(pack([20 * MIB] * 8, slots=8, options=OPTIONS)) == 8
