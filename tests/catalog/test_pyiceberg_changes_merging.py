"""Merging keeps manifests few and writes each file anew a few times only."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.catalog.pyiceberg_changes import FAN, FULL, manifests_to_merge

COUNTS = st.lists(st.integers(0, 3 * FULL), max_size=40)


def merged(counts: list[int]) -> tuple[list[int], int]:
    """The manifests after a commit, and how many files were written anew."""
    places = manifests_to_merge(counts)
    if not places:
        return counts, 0
    total = sum(counts[place] for place in places)
    left = [count for place, count in enumerate(counts) if place not in places]
    return [total, *left], total


def test_small_appends_leave_few_manifests_and_write_each_file_a_few_times() -> None:
    counts: list[int] = []
    rewritten, most = [], 0
    for _ in range(10_000):
        counts, written = merged([1, *counts])
        rewritten.append(written)
        most = max(most, len(counts))
    assert sum(counts) == 10_000
    assert most <= 10_000 // FULL + 1 + 5 * FAN
    assert sum(rewritten) <= 5 * 10_000
    assert max(rewritten) <= 2 * FULL
    assert sorted(rewritten)[9_900] <= 64


def test_like_is_merged_with_like_and_what_comes_out_with_its_own() -> None:
    assert manifests_to_merge([1, 1, 1]) == ()
    assert manifests_to_merge([1, 1, 1, 1]) == (0, 1, 2, 3)
    assert manifests_to_merge([1, 1, 500, 1, 1, 500]) == (0, 1, 3, 4)
    assert manifests_to_merge([1, 1, 1, 1, 4, 4, 4]) == tuple(range(7))
    assert manifests_to_merge([1, 1, 1, 1, 4, 4]) == (0, 1, 2, 3)
    assert manifests_to_merge([FULL] * 20) == ()
    assert manifests_to_merge([]) == ()


@settings(deadline=None)
@given(COUNTS)
def test_a_merge_is_bounded_takes_no_full_one_and_leaves_fewer(counts: list[int]) -> None:
    places = manifests_to_merge(counts)
    assert len(places) != 1
    assert all(counts[place] < FULL for place in places)
    assert sum(counts[place] for place in places) < 2 * FULL
    assert list(places) == sorted(set(places))


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=200))
def test_appends_of_any_sizes_stay_within_the_bound(sizes: list[int]) -> None:
    counts: list[int] = []
    for size in sizes:
        counts, _ = merged([size, *counts])
        assert len([count for count in counts if count < FULL]) <= 5 * FAN
    assert sum(counts) == sum(sizes)
