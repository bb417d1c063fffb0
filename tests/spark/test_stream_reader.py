"""A stream over a real log: where it begins, how far a trigger goes, what a batch is."""

import pytest
from tests.memory_cluster import TOPIC
from tests.spark.stream_stage import OTHER, Theatre, offsets, play, ranges_of

from lakelog.config.named_options import BadOption
from lakelog.index.ports import TopicStreams
from lakelog.lake.read.range_plan import DataLoss
from lakelog.spark.stream_offsets import TOPIC_IDS
from lakelog.spark.topic_poller import TOPICS_S


def test_a_stream_begins_where_the_options_say_once_and_for_all() -> None:
    async def scenario(at: Theatre) -> None:
        earliest, latest = at.query(startingOffsets="earliest"), at.query()
        some = at.query(startingOffsets='{"t":{"0":2,"1":-1}}')
        assert offsets(await earliest.initial()) == [0, 0]
        assert offsets(await latest.initial()) == [5, 3]
        assert offsets(await some.initial()) == [2, 3]
        await at.fill(4, 4)
        assert offsets(await latest.initial()) == [5, 3]
        assert offsets(await at.query().initial()) == [9, 7]

    play(scenario, 5, 3)


def test_a_begin_that_would_be_another_one_later_is_the_end_of_the_first_batch() -> None:
    async def scenario(at: Theatre) -> None:
        for options in ({}, {"startingOffsets": '{"t":{"0":-1,"1":0}}'}):
            query = at.query(**options)
            begin = await query.initial()
            await at.fill(4, 4)
            assert await query.latest(begin, None) == begin
            assert (await query.planned(begin, begin)).splits == ()
            assert await query.latest(begin, None) != begin

    play(scenario, 5, 3)


def test_a_begin_that_stays_needs_no_empty_batch() -> None:
    async def scenario(at: Theatre) -> None:
        for text in ("earliest", '{"t":{"0":-2,"1":1}}'):
            query = at.query(startingOffsets=text)
            assert offsets(await query.latest(await query.initial(), None)) == [5, 3]

    play(scenario, 5, 3)


def test_a_query_that_never_committed_its_first_batch_goes_on_at_its_offsets() -> None:
    async def scenario(at: Theatre) -> None:
        checkpointed = await at.query().initial()
        await at.fill(4, 4)
        again = at.query()
        begin = await again.initial()
        assert (await again.planned(begin, checkpointed)).splits == ()
        end = await again.latest(checkpointed, None)
        assert ranges_of(await again.planned(checkpointed, end)) == [("t", 0, 5, 9), ("t", 1, 3, 7)]

    play(scenario, 5, 3)


def test_a_batch_is_the_same_range_whoever_plans_it() -> None:
    async def scenario(at: Theatre) -> None:
        query = at.query(startingOffsets="earliest", maxOffsetsPerTrigger="4")
        start = await query.initial()
        seen = []
        while (end := await query.latest(start, 4)) != start:
            first = await query.planned(start, end)
            assert await query.planned(start, end) is first
            await at.fill(1)
            assert ranges_of(await at.query().planned(start, end)) == ranges_of(first)
            seen += ranges_of(first)
            start = end
            if len(seen) > 6:
                break
        assert seen[:4] == [("t", 0, 0, 2), ("t", 1, 0, 1), ("t", 0, 2, 4), ("t", 1, 1, 2)]

    play(scenario, 5, 3)


def test_a_trigger_waits_for_enough_records_or_long_enough() -> None:
    async def scenario(at: Theatre) -> None:
        query = at.query(
            startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="30s"
        )
        begin = await query.initial()
        first = await query.latest(begin, 1 << 62)
        assert offsets(first) == [5]
        await at.fill(9)
        assert await query.latest(first, 1 << 62) == first
        await at.fill(1)
        second = await query.latest(first, 1 << 62)
        assert offsets(second) == [15]
        await at.fill(1)
        assert await query.latest(second, 1 << 62) == second
        at.clock.now_s += 30
        assert offsets(await query.latest(second, 1 << 62)) == [16]
        assert offsets(await query.latest(begin, None)) == [16]  # everything, whatever is enough

    play(scenario, 5)


def test_a_stream_of_what_is_available_ends_there() -> None:
    async def scenario(at: Theatre) -> None:
        query = at.query(startingOffsets="earliest", minOffsetsPerTrigger="100")
        await query.pin()
        start = await query.initial()
        await at.fill(4, 4)
        await at.add("u", OTHER, 7)
        reported = await query.available()
        ends = []
        while (end := await query.latest(start, 3)) != start:
            ends.append(offsets(end))
            start = end
        assert ends == [[1, 1], [3, 2], [5, 3]]
        assert reported == start

    play(scenario, 5, 3)


def test_a_stream_of_what_is_available_from_the_latest_offset_on_is_empty_and_ends() -> None:
    async def scenario(at: Theatre) -> None:
        query = at.query()
        await query.pin()
        await at.fill(2)
        begin = await query.initial()
        assert await query.latest(begin, None) == begin
        assert await query.latest(begin, None) == begin

    play(scenario, 5)


def test_new_partitions_and_topics_are_read_from_their_begin() -> None:
    async def scenario(at: Theatre) -> None:
        query = at.query(subscribePattern="t|u", startingOffsets="latest")
        start = await query.initial()
        await query.latest(start, None)
        log = at.index.node.log
        await log.create_streams(TOPIC, first_partition=1, streams=[2])
        at.index.topic_list[0] = TopicStreams("t", bytes(TOPIC), (1, 2))
        await at.add("u", OTHER, 3)
        await at.fill(1, 2, 3)
        at.clock.now_s += TOPICS_S
        end = await query.latest(start, None)
        assert (offsets(end), offsets(end, "u")) == ([6, 2], [3])
        plan = await query.planned(start, end)
        assert ranges_of(plan) == [("t", 0, 5, 6), ("t", 1, 0, 2), ("u", 0, 0, 3)]

    play(scenario, 5)


def test_a_stream_of_a_pattern_waits_for_its_first_topic() -> None:
    async def scenario(at: Theatre) -> None:
        query = at.query(subscribePattern="u")
        begin = await query.initial()
        assert begin == {TOPIC_IDS: {}}
        assert await query.latest(begin, None) == begin
        await at.add("u", OTHER, 2)
        await at.fill(0, 4)
        at.clock.now_s += TOPICS_S
        end = await query.latest(begin, None)
        assert ranges_of(await query.planned(begin, end)) == [("u", 0, 0, 4)]

    play(scenario, 5)


def test_a_batch_is_planned_as_it_was_whatever_the_options_name_now() -> None:
    async def scenario(at: Theatre) -> None:
        await at.add("u", OTHER, 2)
        await at.fill(0, 4)
        both = at.query(subscribe="t,u", startingOffsets="earliest")
        start = await both.initial()
        end = await both.latest(start, None)
        other = at.query(subscribe="u")
        assert ranges_of(await other.planned(start, end)) == [("t", 0, 0, 5), ("u", 0, 0, 4)]
        after = await other.latest(end, None)
        assert list(after) == ["u", TOPIC_IDS]

    play(scenario, 5)


def test_a_checkpoint_of_spark_s_kafka_source_is_continued() -> None:
    async def scenario(at: Theatre) -> None:
        query = at.query()
        start = {"t": {"1": 1, "0": 2}}
        end = await query.latest(start, None)
        assert (offsets(end), end[TOPIC_IDS]) == ([5, 3], {"t": bytes(TOPIC).hex()})
        assert ranges_of(await query.planned(start, end)) == [("t", 0, 2, 5), ("t", 1, 1, 3)]
        with pytest.raises(DataLoss, match="t-0 was read up to offset 9, and ends at 5"):
            await query.latest({"t": {"0": 9, "1": 0}}, None)

    play(scenario, 5, 3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "x"}, "subscribe names 'x'"),
        ({"startingOffsets": '{"t":{"0":99}}'}, "t-0 ends at offset 5"),
        ({"startingOffsets": '{"t":{"0":1,"1":1}}'}, "t-1, not among those"),
    ],
)
def test_a_begin_that_cannot_be_is_an_error(options: dict[str, str], said: str) -> None:
    async def scenario(at: Theatre) -> None:
        with pytest.raises((BadOption, DataLoss), match=said):
            await at.query(**options).initial()

    play(scenario, 5)
