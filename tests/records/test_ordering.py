"""The kernels of merging and their twins in numpy: each step with values, then both against each
other and against plain Python."""

from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.sides import native

from lakelog.records import ordering
from lakelog.records.kernels import INT64_MAX, INT64_MIN
from lakelog.records.ordering import (
    KEY_NULLS,
    KEY_VIEWS,
    VALUE_NULLS,
    VALUE_VIEWS,
    Merged,
    Source,
    Sources,
    choose_in_numpy,
    gather_in_numpy,
    is_sorted,
    joined,
    sort_joined,
    stable_order,
)

if TYPE_CHECKING:
    from lakelog.records.kernels import Longs


@pytest.fixture(autouse=True)
def _compiled() -> None:
    native()


def source(index: int, times_ms: list[int], *, nulls: bool = False) -> Source:
    """Rows whose columns are all different, so that a wrong one shows."""
    times = np.array(times_ms, np.int64)
    order = None if is_sorted(times) else np.argsort(times, kind="stable").astype(np.int32)
    rows = np.arange(len(times), dtype=np.int32)
    keys = np.stack((rows % 25, rows + 100, 0 * rows, rows + 300), axis=1).astype(np.int32)
    return Source(
        index=index,
        timestamps_ms=times if order is None else times[order],
        order=order,
        offsets=index * 1_000 + np.arange(len(times), dtype=np.int64),
        key_views=keys,
        value_views=keys + np.array((9, 1, 0, 1), np.int32),
        key_nulls=rows % 3 == 0 if nulls else None,
        value_nulls=rows % 2 == 0 if nulls else None,
    )


def together(*each: Source) -> Sources:
    return Sources(each, tuple([one.native() for one in each]))


def whole(sources: Sources) -> "Longs":
    counts = [len(one) for one in sources.each]
    return np.array([[0] * len(counts), counts], np.int64)


def test_equal_timestamps_stay_as_they_stand() -> None:
    assert stable_order(np.array([3, 1, 3, 1, 2])).tolist() == [1, 3, 4, 0, 2]


def test_nothing_is_sorted_to_nothing() -> None:
    assert stable_order(np.zeros(0, np.int64)).tolist() == []
    assert is_sorted(np.zeros(0, np.int64))


def test_timestamps_too_far_apart_for_one_word_are_sorted_all_the_same() -> None:
    times = np.array([INT64_MAX, INT64_MIN, 0, -1, INT64_MAX])
    assert not native().stable_order(times, np.empty(5, np.int32))
    assert stable_order(times).tolist() == [1, 3, 2, 0, 4]


def test_many_rows_take_digits_of_eleven_bits() -> None:
    times = np.random.default_rng(1).integers(-(1 << 40), 1 << 40, 10_000)
    order = np.empty(len(times), np.int32)
    assert native().stable_order(times, order)
    assert (order == np.argsort(times, kind="stable")).all()


def test_rows_within_the_limit_are_chosen() -> None:
    sources = together(source(2, [1, 5, 6]), source(4, [5, 7]))
    spans = whole(sources)
    assert ordering.choose(sources, spans, (5, 2), 100) == 2
    assert spans.tolist() == [[0, 0], [2, 0]]


def test_of_equal_rows_those_of_the_first_source_are_chosen() -> None:
    sources = together(source(2, [5, 5, 5]), source(4, [4, 5, 5]))
    spans = whole(sources)
    assert ordering.choose(sources, spans, (9, 9), 3) == 3
    assert spans.tolist() == [[0, 0], [2, 1]]


def test_rows_that_are_gone_are_not_chosen() -> None:
    sources = together(source(2, [1, 2, 3]), source(4, [1, 2, 3]))
    spans = np.array([[2, 0], [3, 3]])
    assert ordering.choose(sources, spans, (9, 9), 2) == 2
    assert spans.tolist() == [[2, 0], [2, 2]]


def test_merged_rows_go_by_time_and_then_by_source() -> None:
    sources = together(source(2, [7, 5]), source(4, [5, 6]))
    merged = ordering.merge(sources, whole(sources), 4)
    assert merged.timestamps_ms.tolist() == [5, 5, 6, 7]
    assert merged.numbers.tolist() == [0, 1, 1, 0]
    assert merged.rows.tolist() == [1, 0, 1, 0]
    assert ordering.gather_offsets(sources, merged).tolist() == [2_001, 4_000, 4_001, 2_000]


def test_rows_too_far_apart_for_one_word_are_merged_all_the_same() -> None:
    sources = together(source(0, [INT64_MIN, INT64_MAX]), source(1, [0]))
    columns = np.empty(3, np.int32), np.empty(3, np.int32), np.empty(3, np.int64)
    assert not native().merge_rows(sources.natives, whole(sources), *columns)
    merged = ordering.merge(sources, whole(sources), 3)
    assert merged.timestamps_ms.tolist() == [INT64_MIN, 0, INT64_MAX]


def test_a_view_names_its_source_if_it_points_anywhere() -> None:
    sources = together(source(0, list(range(14))), source(1, list(range(14))))
    merged = ordering.merge(sources, whole(sources), 28)
    views = ordering.gather_views(sources, merged, KEY_VIEWS)
    assert views[24].tolist() == [12, 112, 0, 312]
    assert views[25].tolist() == [12, 112, 0, 312]
    assert views[26].tolist() == [13, 113, 0, 313]
    assert views[27].tolist() == [13, 113, 1, 313]


def test_columns_without_nulls_have_no_flags() -> None:
    sources = together(source(0, [1]), source(1, [2]))
    merged = ordering.merge(sources, whole(sources), 2)
    assert ordering.gather_nulls(sources, merged, KEY_NULLS) is None


def test_a_source_of_other_arrays_than_the_kernels_read_is_refused() -> None:
    times = np.arange(6, dtype=np.int64)
    good = source(0, [1, 2, 3])
    narrow = cast("Longs", times[:3].astype(np.int32))
    for wrong in (times[::2], times[:2], narrow):
        with pytest.raises((TypeError, ValueError)):
            Source(
                index=0,
                timestamps_ms=good.timestamps_ms,
                order=None,
                offsets=wrong,
                key_views=good.key_views,
                value_views=good.value_views,
                key_nulls=None,
                value_nulls=None,
            ).native()


TIMES = st.lists(st.integers(-4, 4) | st.integers(INT64_MIN, INT64_MAX), max_size=12)


@st.composite
def several(draw: st.DrawFn) -> tuple[Sources, "Longs"]:
    """Sources by index, some of their rows gone already."""
    drawn = draw(
        st.lists(st.tuples(st.integers(0, 5), TIMES, st.booleans()), min_size=1, max_size=5)
    )
    drawn.sort(key=lambda one: one[0])
    sources = together(*(source(index, times, nulls=nulls) for index, times, nulls in drawn))
    spans = whole(sources)
    spans[0] = [draw(st.integers(0, len(one))) for one in sources.each]
    return sources, spans


@settings(deadline=None)
@given(TIMES)
def test_the_compiled_order_is_the_stable_one(times: list[int]) -> None:
    expected = sorted(range(len(times)), key=lambda place: times[place])
    assert stable_order(np.array(times, np.int64)).tolist() == expected


@settings(deadline=None, max_examples=examples(300))
@given(several(), st.integers(-5, 5) | st.just(INT64_MAX), st.integers(-1, 6), st.integers(1, 40))
def test_both_choose_the_least_rows_within_the_limit(
    drawn: tuple[Sources, "Longs"], limit_ms: int, limit_index: int, rows_max: int
) -> None:
    sources, spans = drawn
    rows = [
        (int(one.timestamps_ms[place]), number)
        for number, one in enumerate(sources.each)
        for place in range(int(spans[0, number]), len(one))
        if (int(one.timestamps_ms[place]), one.index) <= (limit_ms, limit_index)
    ]
    expected = [number for _, number in sorted(rows)[:rows_max]]
    for choose in (choose_in_numpy, ordering.choose):
        mine = spans.copy()
        assert choose(sources, mine, (limit_ms, limit_index), rows_max) == len(expected)
        counts = (mine[1] - mine[0]).tolist()
        assert counts == [expected.count(number) for number in range(len(sources.each))]


@settings(deadline=None, max_examples=examples(300))
@given(several())
def test_both_merge_and_gather_the_same_rows(drawn: tuple[Sources, "Longs"]) -> None:
    sources, spans = drawn
    count = int((spans[1] - spans[0]).sum())
    expected = sorted(
        (int(one.timestamps_ms[place]), number, place)
        for number, one in enumerate(sources.each)
        for place in range(int(spans[0, number]), len(one))
    )
    merged = ordering.merge(sources, spans, count)
    twin = sort_joined(joined(sources, spans))
    assert merged.numbers.tolist() == twin.numbers.tolist()
    assert merged.rows.tolist() == twin.rows.tolist()
    assert merged.timestamps_ms.tolist() == twin.timestamps_ms.tolist()
    assert merged.timestamps_ms.tolist() == [time_ms for time_ms, _, _ in expected]
    assert merged.numbers.tolist() == [number for _, number, _ in expected]
    places = [sources.each[number].rows(place, place + 1)[0] for _, number, place in expected]
    assert merged.rows.tolist() == places
    assert_gathers_agree(sources, merged)


def assert_gathers_agree(sources: Sources, merged: Merged) -> None:
    count = len(merged.rows)
    offsets = np.empty(count, np.int64)
    gather_in_numpy(sources, ordering.OFFSETS, merged, offsets)
    assert ordering.gather_offsets(sources, merged).tolist() == offsets.tolist()
    for field in (KEY_VIEWS, VALUE_VIEWS):
        views = np.empty((count, 4), np.int32)
        gather_in_numpy(sources, field, merged, views)
        views[:, 2] = np.where(views[:, 0] > 12, merged.numbers, 0)
        assert ordering.gather_views(sources, merged, field).tolist() == views.tolist()
    for field in (KEY_NULLS, VALUE_NULLS):
        flags = np.zeros(count, np.bool_)
        gather_in_numpy(sources, field, merged, flags)
        nulls = ordering.gather_nulls(sources, merged, field)
        assert flags.tolist() == (nulls.tolist() if nulls is not None else [False] * count)
