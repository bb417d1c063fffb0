"""Where a stream stands: what is new, what is gone, and what a batch is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.index.ports import Bounds, TopicStreams
from lakelog.lake.read.read_request import Assigned, Matching, PartitionName, Subscribed, Topics
from lakelog.spark.offsets import Vector
from lakelog.spark.standing import (
    LivePartitions,
    Standing,
    live_partitions,
    never_there,
    ranges,
    standing,
    vector_of,
    wanted_now,
)

OLD, NEW = bytes(16), bytes(range(16))
ALL = Subscribed(("t", "u"))
T0, T1, U0 = PartitionName("t", 0), PartitionName("t", 1), PartitionName("u", 0)


def look(bounds: dict[PartitionName, tuple[int, int]], topic_id: bytes = OLD) -> LivePartitions:
    counts = {place.topic: place.partition + 1 for place in sorted(bounds)}
    streams = {place: at for at, place in enumerate(sorted(bounds))}
    topics = [
        TopicStreams(name, topic_id, tuple(streams[PartitionName(name, at)] for at in range(count)))
        for name, count in counts.items()
    ]
    found = {streams[place]: Bounds(*one) for place, one in bounds.items()}
    return live_partitions(wanted_now(Matching(""), topics), found)


def stand(
    offsets: dict[PartitionName, int], there: LivePartitions, wanted: Topics = ALL
) -> Standing:
    return standing(Vector(offsets, {"t": OLD}), there, wanted)


def test_a_stream_goes_on_where_it_was() -> None:
    found = stand({T0: 5, T1: 8}, look({T0: (2, 9), T1: (0, 8)}))
    assert found.begins == {T0: 5, T1: 8}
    assert found.heads == {T0: 9, T1: 8}
    assert found.topic_ids == {"t": OLD}
    assert (found.losses, found.notes) == ((), ())


def test_new_partitions_and_topics_begin_at_their_earliest_record() -> None:
    found = stand({T0: 5}, look({T0: (2, 9), T1: (0, 8), U0: (0, 3)}))
    assert found.begins == {T0: 5, T1: 0, U0: 0}
    assert found.losses == ()


def test_a_new_partition_whose_first_records_are_gone_is_a_loss() -> None:
    found = stand({T0: 5}, look({T0: (2, 9), T1: (3, 8)}))
    assert found.begins == {T0: 5, T1: 3}
    assert found.losses == ("t-1 is new and begins at offset 3: [0, 3) is gone",)


def test_retention_that_overtakes_is_a_loss_and_the_stream_goes_on_at_the_log_start() -> None:
    found = stand({T0: 5}, look({T0: (7, 9)}))
    assert found.begins == {T0: 7}
    assert found.losses == ("t-0 was read up to offset 5, and begins at 7 by now: [5, 7) is gone",)


def test_offsets_beyond_the_end_are_a_loss() -> None:
    found = stand({T0: 12}, look({T0: (7, 9)}))
    assert found.begins == {T0: 9}
    assert found.losses == ("t-0 was read up to offset 12, and ends at 9",)


def test_a_topic_that_was_made_again_begins_at_its_earliest_record() -> None:
    found = stand({T0: 5}, look({T0: (0, 9)}, NEW))
    assert found.begins == {T0: 0}
    assert found.topic_ids == {"t": NEW}
    assert found.losses == (
        "t-0 was read up to offset 5, and its topic was deleted and made again since",
    )


def test_what_was_deleted_is_a_loss_and_what_is_not_asked_for_any_more_is_none() -> None:
    found = stand({T0: 5, T1: 6, U0: 7}, look({T0: (0, 9)}), Matching("t"))
    assert found.begins == {T0: 5}
    assert found.losses == ("t-1 was read up to offset 6, and was deleted since",)
    assert found.notes == ("u-0 is not read any more: the options do not name it",)


def test_a_checkpoint_without_ids_means_the_topics_of_that_name() -> None:
    found = standing(Vector({T0: 5}), look({T0: (2, 9)}, NEW), ALL)
    assert (found.begins, found.losses) == ({T0: 5}, ())
    assert found.topic_ids == {"t": NEW}


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (Subscribed(("t", "x")), ("subscribe", "x")),
        (Subscribed(("t", "u")), None),
        (Assigned((T0, T1)), ("assign", "t-1")),
        (Assigned((T0, U0)), None),
        (Matching("x"), None),
    ],
)
def test_what_was_never_there_is_a_wrong_option(
    wanted: Topics, named: tuple[str, str] | None
) -> None:
    assert never_there(wanted, Vector({U0: 3}), look({T0: (0, 1)})) == named


def test_only_what_is_there_is_wanted() -> None:
    topics = [TopicStreams("t", OLD, (1, 2))]
    assigned = Assigned((PartitionName("t", 1), PartitionName("t", 2), PartitionName("x", 0)))
    assert [one.stream for one in wanted_now(assigned, topics)] == [2]
    assert [one.stream for one in wanted_now(Subscribed(("x", "t")), topics)] == [1, 2]
    assert wanted_now(Matching("x"), topics) == ()


def test_a_partition_without_bounds_is_gone() -> None:
    topics = [TopicStreams("t", OLD, (1, 2))]
    found = live_partitions(wanted_now(Matching("t"), topics), {2: Bounds(0, 4)})
    assert vector_of(found) == Vector({T1: 4}, {"t": OLD})


def test_a_batch_is_what_lies_between_its_vectors() -> None:
    start, end = Vector({T0: 3, T1: 4}, {"t": OLD}), Vector({T0: 5, T1: 4, U0: 2}, {"t": OLD})
    found = ranges(start, end, look({T0: (0, 9), T1: (0, 9), U0: (0, 9)}))
    assert found.starts == {T0: 3, U0: 0}
    assert found.ends == {T0: 5, U0: 2}
    assert [one.place for one in found.partitions] == [T0, U0]
    assert found.losses == ()


def test_a_batch_that_ends_before_it_starts_is_empty() -> None:
    found = ranges(Vector({T0: 9, T1: 2}), Vector({T0: 5}), {})
    assert (found.partitions, found.losses) == ((), ())


def test_a_batch_of_a_topic_that_is_gone_is_lost() -> None:
    start, end = Vector({T0: 3}, {"t": OLD}), Vector({T0: 5}, {"t": OLD})
    lost = ("t-0 [3, 5) cannot be read: its topic was deleted",)
    assert ranges(start, end, {}).losses == lost
    assert ranges(start, end, look({T0: (0, 9)}, NEW)).losses == lost


def test_a_batch_over_two_topics_of_one_name_is_the_second_from_its_begin() -> None:
    start, end = Vector({T0: 3}, {"t": OLD}), Vector({T0: 2}, {"t": NEW})
    found = ranges(start, end, look({T0: (0, 9)}, NEW))
    assert (found.starts, found.ends) == ({T0: 0}, {T0: 2})
    assert len(found.losses) == 1


NUMBERS = st.integers(0, 30)


@given(
    st.dictionaries(st.sampled_from([T0, T1]), NUMBERS),
    st.tuples(NUMBERS, NUMBERS).map(sorted),
    st.sampled_from([OLD, NEW]),
)
def test_a_stream_goes_on_within_what_is_there_and_loses_nothing_in_silence(
    offsets: dict[PartitionName, int], bounds: list[int], topic_id: bytes
) -> None:
    there = look({T0: (bounds[0], bounds[1])}, topic_id)
    found = stand(offsets, there)
    assert bounds[0] <= found.begins[T0] <= found.heads[T0] == bounds[1]
    if not found.losses:
        assert offsets.keys() <= {T0}
        assert found.begins == {T0: offsets.get(T0, 0)}
