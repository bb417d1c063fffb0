"""Offsets in a checkpoint, what a trigger takes of them, and what is lost between two of them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.index.ports import Bounds, TopicStreams
from lakelog.lake.read.read_request import Assigned, Matching, PartitionName, Subscribed, Topics
from lakelog.model.failures import Refused
from lakelog.spark.stream_offsets import (
    TOPIC_IDS,
    LivePartitions,
    StreamOffsets,
    StreamProgress,
    admitted,
    batch_ranges,
    document_of,
    is_due,
    live_partitions,
    never_there,
    offset_count,
    offsets_of,
    parse_offsets,
    progress_from,
    wanted_now,
)
from lakelog.topics.failures import name_fault

TOPIC_ID = bytes(range(16))
NAMES = st.text("abAB01._-", min_size=1, max_size=5)
VECTORS = st.builds(
    StreamOffsets,
    st.dictionaries(
        st.builds(PartitionName, NAMES, st.integers(0, 2**31 - 1)),
        st.integers(0, 2**63 - 1),
        max_size=9,
    ),
    st.dictionaries(NAMES, st.binary(min_size=16, max_size=16), max_size=3),
)


def test_offsets_are_those_of_kafka_and_the_ids_of_topics() -> None:
    offsets = {PartitionName("t", 10): 3, PartitionName("t", 2): 23, PartitionName("a", 0): 7}
    document = document_of(StreamOffsets(offsets, {"t": TOPIC_ID}))
    assert json.dumps(document) == (
        '{"a": {"0": 7}, "t": {"2": 23, "10": 3},'
        f' "lakelog:topic-ids": {{"t": "{TOPIC_ID.hex()}"}}}}'
    )


def test_no_topic_can_have_the_name_under_which_the_ids_stand() -> None:
    assert name_fault(TOPIC_IDS) is not None


def test_a_checkpoint_of_spark_s_kafka_source_has_no_ids() -> None:
    found = parse_offsets(json.loads('{"b":{"1":5,"0":2},"a":{"0":0}}'))
    assert found == StreamOffsets(
        {PartitionName("b", 1): 5, PartitionName("b", 0): 2, PartitionName("a", 0): 0}, {}
    )


@given(VECTORS)
def test_what_is_written_is_read_and_the_same_offsets_are_the_same_text(
    vector: StreamOffsets,
) -> None:
    text = json.dumps(document_of(vector))
    found = parse_offsets(json.loads(text))
    assert found == vector
    backwards = StreamOffsets(dict(reversed(list(vector.offsets.items()))), vector.topic_ids)
    assert json.dumps(document_of(backwards)) == text


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "7",
        '{"t": 5}',
        '{"t": {"x": 5}}',
        '{"t": {"-1": 5}}',
        '{"t": {"0": -1}}',
        '{"t": {"0": 1.5}}',
        '{"t": {"0": 9223372036854775808}}',
        '{"t": {"2147483648": 0}}',
        '{"lakelog:topic-ids": {"t": "00"}}',
        '{"lakelog:topic-ids": {"t": 5}}',
        '{"lakelog:topic-ids": 5}',
    ],
)
def test_what_are_no_offsets_is_refused_and_shown(text: str) -> None:
    with pytest.raises(Refused, match="the checkpoint holds"):
        parse_offsets(json.loads(text))


def test_a_long_checkpoint_is_not_shown_whole() -> None:
    with pytest.raises(Refused) as caught:
        parse_offsets({"t": {str(at): "x" for at in range(1000)}})
    assert len(str(caught.value)) < 500


PLACES = [PartitionName("t", at) for at in range(5)]
OFFSETS = st.integers(0, 2**63 - 1)
PAIRS = st.lists(st.tuples(OFFSETS, OFFSETS).map(sorted), min_size=1, max_size=5)


def places(*offsets: int) -> dict[PartitionName, int]:
    return dict(zip(PLACES, offsets, strict=False))


@pytest.mark.parametrize(
    ("begins", "ends", "limit", "taken"),
    [
        ((0, 0), (10, 5), 4, (2, 1)),
        ((5, 0), (5, 100), 10, (5, 10)),
        ((0, 0), (1000, 1), 10, (9, 1)),
        ((0, 0, 0), (9, 9, 9), 1, (1, 1, 1)),
        ((3, 4), (9, 9), 11, (9, 9)),
        ((9, 0), (4, 6), 3, (4, 3)),
    ],
)
def test_shares_are_by_size_as_in_kafka_s_source(
    begins: tuple[int, ...], ends: tuple[int, ...], limit: int, taken: tuple[int, ...]
) -> None:
    assert admitted(places(*begins), places(*ends), limit=limit) == places(*taken)


@given(PAIRS, st.integers(1, 2**63 - 1))
def test_every_partition_progresses_and_the_limit_holds_but_for_that(
    pairs: list[list[int]], limit: int
) -> None:
    begins = places(*(begin for begin, _ in pairs))
    ends = places(*(end for _, end in pairs))
    taken = admitted(begins, ends, limit=limit)
    for place, end in ends.items():
        assert begins[place] <= taken[place] <= end
        assert taken[place] > begins[place] or end == begins[place]
    assert offset_count(begins, taken) < limit + len(pairs)


def test_a_trigger_waits_for_enough_but_not_for_ever() -> None:
    assert is_due(10, least=10, waited_s=0.0, delay_s=60)
    assert not is_due(9, least=10, waited_s=59.9, delay_s=60)
    assert is_due(9, least=10, waited_s=60.0, delay_s=60)
    assert not is_due(0, least=10, waited_s=60.0, delay_s=60)


def test_the_first_trigger_takes_what_there_is() -> None:
    assert is_due(1, least=10, waited_s=None, delay_s=60)
    assert not is_due(0, least=10, waited_s=None, delay_s=60)


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
) -> StreamProgress:
    return progress_from(StreamOffsets(offsets, {"t": OLD}), there, wanted)


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
    found = progress_from(StreamOffsets({T0: 5}), look({T0: (2, 9)}, NEW), ALL)
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
    assert never_there(wanted, StreamOffsets({U0: 3}), look({T0: (0, 1)})) == named


def test_only_what_is_there_is_wanted() -> None:
    topics = [TopicStreams("t", OLD, (1, 2))]
    assigned = Assigned((PartitionName("t", 1), PartitionName("t", 2), PartitionName("x", 0)))
    assert [one.stream for one in wanted_now(assigned, topics)] == [2]
    assert [one.stream for one in wanted_now(Subscribed(("x", "t")), topics)] == [1, 2]
    assert wanted_now(Matching("x"), topics) == ()


def test_a_partition_without_bounds_is_gone() -> None:
    topics = [TopicStreams("t", OLD, (1, 2))]
    found = live_partitions(wanted_now(Matching("t"), topics), {2: Bounds(0, 4)})
    assert offsets_of(found) == StreamOffsets({T1: 4}, {"t": OLD})


def test_a_batch_is_what_lies_between_its_vectors() -> None:
    start, end = (
        StreamOffsets({T0: 3, T1: 4}, {"t": OLD}),
        StreamOffsets({T0: 5, T1: 4, U0: 2}, {"t": OLD}),
    )
    found = batch_ranges(start, end, look({T0: (0, 9), T1: (0, 9), U0: (0, 9)}))
    assert found.starts == {T0: 3, U0: 0}
    assert found.ends == {T0: 5, U0: 2}
    assert [one.place for one in found.partitions] == [T0, U0]
    assert found.losses == ()


def test_a_batch_that_ends_before_it_starts_is_empty() -> None:
    found = batch_ranges(StreamOffsets({T0: 9, T1: 2}), StreamOffsets({T0: 5}), {})
    assert (found.partitions, found.losses) == ((), ())


def test_a_batch_of_a_topic_that_is_gone_is_lost() -> None:
    start, end = StreamOffsets({T0: 3}, {"t": OLD}), StreamOffsets({T0: 5}, {"t": OLD})
    lost = ("t-0 [3, 5) cannot be read: its topic was deleted",)
    assert batch_ranges(start, end, {}).losses == lost
    assert batch_ranges(start, end, look({T0: (0, 9)}, NEW)).losses == lost


def test_a_batch_over_two_topics_of_one_name_is_the_second_from_its_begin() -> None:
    start, end = StreamOffsets({T0: 3}, {"t": OLD}), StreamOffsets({T0: 2}, {"t": NEW})
    found = batch_ranges(start, end, look({T0: (0, 9)}, NEW))
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
