"""A stream over a real log: topics that are gone or made again, records that retention took."""

import logging

import pytest
from tests.spark.stream_stage import OTHER, Theatre, offsets, play, ranges_of

from lakelog.config.named_options import BadOption
from lakelog.lake.read.range_plan import DataLoss
from lakelog.spark.stream_offsets import TOPIC_IDS


async def made_again(at: Theatre) -> None:
    """The topic `t` has another id and another stream, with three records."""
    at.index.topic_list.clear()
    await at.add("t", OTHER, 2)
    await at.index.node.log.drop_streams([1])
    await at.fill(0, 3)


def test_a_topic_that_was_made_again_is_an_error_that_names_it() -> None:
    async def scenario(at: Theatre) -> None:
        query = at.query(startingOffsets="earliest")
        start = await query.latest(await query.initial(), None)
        await made_again(at)
        said = "t-0 was read up to offset 5, .* made again since; set failOnDataLoss to false"
        with pytest.raises(DataLoss, match=said):
            await query.latest(start, None)

    play(scenario, 5)


def test_a_topic_that_was_made_again_is_read_from_its_begin_where_losses_are_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(at: Theatre) -> None:
        query = at.query(startingOffsets="earliest", failOnDataLoss="false")
        start = await query.latest(await query.initial(), None)
        await made_again(at)
        end = await query.latest(start, None)
        plan = await query.planned(start, end)
        assert ranges_of(plan) == [("t", 0, 0, 3)]
        strict = at.query()
        with pytest.raises(DataLoss, match="made again"):
            await strict.planned(start, end)

    with caplog.at_level(logging.WARNING):
        play(scenario, 5)
    assert "t-0 was read up to offset 5, and its topic was deleted and made again" in caplog.text


def test_a_topic_that_is_gone_is_an_error_or_waited_for() -> None:
    async def scenario(at: Theatre) -> None:
        strict, lenient = at.query(), at.query(failOnDataLoss="false")
        start = await lenient.latest(await lenient.initial(), None)
        await lenient.latest(start, None)
        await strict.latest(start, None)
        at.index.topic_list.clear()
        await at.index.node.log.drop_streams([1])
        with pytest.raises(DataLoss, match="t-0 was read up to offset 5, and was deleted since"):
            await strict.latest(start, None)
        nothing = await lenient.latest(start, None)
        assert nothing == {TOPIC_IDS: {}}
        assert (await lenient.planned(start, nothing)).splits == ()
        assert await lenient.latest(nothing, None) == nothing
        with pytest.raises(BadOption, match="subscribe names t, which does not exist"):
            await strict.latest(nothing, None)
        with pytest.raises(DataLoss, match=r"t-0 \[0, 5\) cannot be read: its topic was deleted"):
            await at.query().planned(nothing, start)

    play(scenario, 5)


def test_retention_that_overtakes_a_stream_is_an_error_or_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(at: Theatre) -> None:
        start = await at.query(startingOffsets="earliest").initial()
        end = await at.query().initial()
        await at.index.node.log.trim({1: 3})
        strict = at.query()
        with pytest.raises(DataLoss, match=r"begins at 3 by now: \[0, 3\) is gone.*failOnDataLoss"):
            await strict.latest(start, None)
        with pytest.raises(DataLoss, match=r"begins at offset 3, and \[0, 5\) is wanted"):
            await strict.planned(start, end)
        lenient = at.query(failOnDataLoss="false")
        assert offsets(await lenient.latest(start, 1)) == [4]
        for _ in range(3):  # it is said once, however often Spark asks
            assert await lenient.latest(start, None) == end
        assert ranges_of(await lenient.planned(start, end)) == [("t", 0, 3, 5)]

    with caplog.at_level(logging.WARNING):
        play(scenario, 5)
    assert caplog.text.count("[0, 3) is gone") == 1
