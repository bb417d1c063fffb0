"""From a request to pinned ranges: which partitions, which offsets, what is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lake.packed import TOPIC_ID, entries, hinted

from lakelog.config.named_options import BadOption
from lakelog.index.ports import Bounds, TopicStreams
from lakelog.lake.read.range_plan import (
    DataLoss,
    PartitionStream,
    chosen_partitions,
    names_wanted,
    pinned,
    pruned_entries,
    pruned_ranges,
    resolved,
    times_wanted,
)
from lakelog.lake.read.read_request import (
    EARLIEST,
    LATEST,
    Assigned,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Edge,
    Filters,
    Matching,
    PartitionName,
    Subscribed,
    TimestampStrategy,
)

OTHER_ID = bytes(16)
TOPICS = (TopicStreams("b", OTHER_ID, (4,)), TopicStreams("a", TOPIC_ID, (1, 2, 3)))
PARTITIONS = chosen_partitions(Subscribed(("a",)), TOPICS)
PLACES = [one.place for one in PARTITIONS]
BOUNDS = {1: Bounds(5, 10), 2: Bounds(0, 0), 3: Bounds(7, 7)}


def test_partitions_come_by_topic_and_number() -> None:
    everything = chosen_partitions(Matching("."), TOPICS)
    assert [str(one.place) for one in everything] == ["a-0", "a-1", "a-2", "b-0"]
    assert everything[3] == PartitionStream("b", OTHER_ID, 0, 4)
    assert chosen_partitions(Subscribed(("b", "a")), TOPICS) == everything
    assigned = Assigned((PartitionName("a", 2), PartitionName("b", 0)))
    assert [one.stream for one in chosen_partitions(assigned, TOPICS)] == [3, 4]
    assert names_wanted(assigned) == ("a", "b")
    assert names_wanted(Matching("x")) is None


def test_a_pattern_is_looked_for_anywhere_in_a_name_as_spark_does() -> None:
    topics = [TopicStreams(name, OTHER_ID, (at,)) for at, name in enumerate(["xay", "ab", "b"])]
    assert [one.topic for one in chosen_partitions(Matching("a"), topics)] == ["ab", "xay"]
    assert [one.topic for one in chosen_partitions(Matching("^a"), topics)] == ["ab"]
    assert chosen_partitions(Matching("nothing"), topics) == ()


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Subscribed(("a", "c")), "subscribe names 'c'"),
        (Assigned((PartitionName("c", 0),)), "assign names 'c'"),
        (Assigned((PartitionName("a", 3),)), "assign names a-3, but a has 3 partitions"),
    ],
)
def test_what_is_not_there_is_named(wanted: Subscribed | Assigned, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        chosen_partitions(wanted, TOPICS)


def test_limits_become_offsets() -> None:
    ends = resolved(Edge.LATEST, PARTITIONS, {}, is_start=False)
    assert ends == dict.fromkeys(PLACES, LATEST)
    given = {
        PartitionName("a", 0): 7,
        PartitionName("a", 1): EARLIEST,
        PartitionName("a", 2): LATEST,
    }
    assert resolved(AtOffsets(given), PARTITIONS, {}, is_start=True) == given
    times = AtTimestamps(dict(zip(PLACES, (1, 2, 3), strict=True)), TimestampStrategy.LATEST)
    assert times_wanted(times, PARTITIONS) == {1: 1, 2: 2, 3: 3}
    assert times_wanted(AtTimestamp(9), PARTITIONS) == {1: 9, 2: 9, 3: 9}
    assert times_wanted(Edge.LATEST, PARTITIONS) == {}
    assert resolved(times, PARTITIONS, {1: 8}, is_start=True) == dict(
        zip(PLACES, (8, LATEST, LATEST), strict=True)
    )


def test_offsets_must_name_every_partition_and_no_other() -> None:
    few = AtOffsets({PartitionName("a", 0): 7})
    with pytest.raises(BadOption, match="lacks a-1, a-2"):
        resolved(few, PARTITIONS, {}, is_start=True)
    many = AtOffsets({**dict.fromkeys(PLACES, 1), PartitionName("b", 0): 1})
    with pytest.raises(BadOption, match="names b-0"):
        resolved(many, PARTITIONS, {}, is_start=False)
    with pytest.raises(BadOption, match="endingOffsetsByTimestamp"):
        resolved(AtTimestamps({}), PARTITIONS, {}, is_start=False)


def test_a_time_that_no_record_reaches_is_an_error_or_the_latest() -> None:
    with pytest.raises(BadOption, match=r"a-1 has no record at or after 9.*Strategy=latest"):
        resolved(AtTimestamp(9), PARTITIONS, {1: 8}, is_start=True)
    ends = resolved(AtTimestamp(9), PARTITIONS, {1: 8}, is_start=False)
    assert ends == dict(zip(PLACES, (8, LATEST, LATEST), strict=True))


def test_a_plan_is_pinned_to_one_vector() -> None:
    starts, ends = dict.fromkeys(PLACES, EARLIEST), dict.fromkeys(PLACES, LATEST)
    found = pinned(PARTITIONS, starts, ends, BOUNDS, fail_on_data_loss=True)
    assert [str(one) for one in found.ranges] == ["a-0 [5, 10)"]
    assert found.vector == dict(zip(PLACES, ((5, 10), (0, 0), (7, 7)), strict=True))
    assert found.notes == ()


@pytest.mark.parametrize(
    ("start", "end", "clamped"),
    [
        (4, LATEST, (5, 10)),
        (0, 3, (5, 5)),
        (6, 11, (6, 10)),
        (11, LATEST, (10, 10)),
        (12, 13, (10, 10)),
        (EARLIEST, 4, (5, 5)),
        (0, 99, (5, 10)),
    ],
)
def test_offsets_beyond_the_ends_are_an_error_or_what_is_there(
    start: int, end: int, clamped: tuple[int, int]
) -> None:
    one = PARTITIONS[:1]
    starts, ends = {one[0].place: start}, {one[0].place: end}
    with pytest.raises(DataLoss, match=r"a-0 .*failOnDataLoss"):
        pinned(one, starts, ends, BOUNDS, fail_on_data_loss=True)
    found = pinned(one, starts, ends, BOUNDS, fail_on_data_loss=False)
    assert found.vector == {one[0].place: clamped}
    assert len(found.notes) == 1


def test_a_start_after_its_end_is_an_error_or_nothing() -> None:
    one = PARTITIONS[:1]
    for start, end in ((8, 6), (9, 0)):
        starts, ends = {one[0].place: start}, {one[0].place: end}
        with pytest.raises(DataLoss, match="before its start"):
            pinned(one, starts, ends, BOUNDS, fail_on_data_loss=True)
        assert pinned(one, starts, ends, BOUNDS, fail_on_data_loss=False).ranges == ()


def test_a_topic_that_is_gone_is_an_error_or_nothing() -> None:
    one = PARTITIONS[:1]
    starts, ends = {one[0].place: EARLIEST}, {one[0].place: LATEST}
    with pytest.raises(DataLoss, match="deleted"):
        pinned(one, starts, ends, {}, fail_on_data_loss=True)
    assert pinned(one, starts, ends, {}, fail_on_data_loss=False).ranges == ()


@given(st.integers(-2, 20), st.integers(-2, 20), st.integers(0, 10), st.integers(0, 10))
def test_a_range_is_always_within_the_log(start: int, end: int, low: int, count: int) -> None:
    one = PARTITIONS[:1]
    place, bounds = one[0].place, {1: Bounds(low, low + count)}
    found = pinned(one, {place: start}, {place: end}, bounds, fail_on_data_loss=False)
    for wanted in found.ranges:
        assert low <= wanted.start < wanted.end <= low + count
    first, after = found.vector[place]
    assert first <= after


def test_filters_prune_ranges_by_place_and_offset() -> None:
    starts, ends = dict.fromkeys(PLACES, 0), dict.fromkeys(PLACES, 10)
    bounds = {stream: Bounds(0, 10) for stream in (1, 2, 3)}
    ranges = pinned(PARTITIONS, starts, ends, bounds, fail_on_data_loss=True).ranges
    kept = pruned_ranges(ranges, Filters(partitions=frozenset({0, 2}), offset_start=4))
    assert [str(one) for one in kept] == ["a-0 [4, 10)", "a-2 [4, 10)"]
    assert pruned_ranges(ranges, Filters(topics=frozenset({"b"}))) == ()
    assert pruned_ranges(ranges, Filters()) == ranges


def test_entries_that_are_too_old_are_left_out() -> None:
    one = hinted(0, 2, 38, entries([0, 10, 20, 30, 40], times_ms=[5, 7, 1, 9]))
    kept = list(pruned_entries(one, Filters(timestamp_start_us=7_000)))
    assert [str(part.pinned) for part in kept] == ["t-0 [10, 20)", "t-0 [30, 38)"]
    assert [len(part.entries) for part in kept] == [1, 1]
    assert list(pruned_entries(one, Filters())) == [one]
    lowest = hinted(0, 0, 10, entries([0, 10], times_ms=[-(1 << 63)]))
    assert list(pruned_entries(lowest, Filters(timestamp_start_us=-(1 << 63) + 500)))
    assert not list(pruned_entries(lowest, Filters(timestamp_start_us=0)))
