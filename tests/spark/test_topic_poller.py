"""How often a stream asks, and what it does when nobody answers."""

import pytest
from tests.spark.stream_stage import Theatre, offsets, play

from lakelog.model.failures import Unavailable
from lakelog.spark.topic_poller import PATIENCE_S, POLL_S


def test_an_idle_stream_asks_fewer_than_20_times_a_second() -> None:
    async def scenario(at: Theatre) -> None:
        query = at.query()
        start = await query.initial()
        at.index.questions.clear()
        end_s = at.clock.now_s + 10
        while at.clock.now_s < end_s:
            assert await query.latest(start, None) == start
            assert await query.available() == start
            await at.clock.sleep(0.01)  # as Spark does
        assert 10 / POLL_S * 0.8 < len(at.index.questions) < 200
        assert 9 <= at.index.questions.count("topics") <= 11

    play(scenario, 5)


def test_nothing_new_is_never_said_from_memory() -> None:
    async def scenario(at: Theatre) -> None:
        query = at.query()
        start = await query.initial()
        await query.latest(start, None)
        for _ in range(5):
            await at.fill(1)
            end = await query.latest(start, None)
            assert end != start
            start = end

    play(scenario, 5)


def test_a_broker_that_does_not_answer_is_asked_again_for_a_minute() -> None:
    async def scenario(at: Theatre) -> None:
        query = at.query(startingOffsets="earliest")
        at.index.failures_left = 20
        end = await query.latest(await query.initial(), None)
        assert offsets(end) == [5]
        at.index.failures_left = 1 << 30
        before_s = at.clock.now_s
        with pytest.raises(Unavailable, match="nobody is there"):
            await query.latest(end, None)
        assert PATIENCE_S <= at.clock.now_s - before_s < PATIENCE_S + 2

    play(scenario, 5)
