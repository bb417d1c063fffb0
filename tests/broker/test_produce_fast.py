"""A request of one good batch takes a shorter way; it must not be seen in any answer."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.broker.data_requests import produce
from tests.broker.data_stage import Stage, batch, idempotent
from tests.broker.whole import finish

from lakelog.broker.call import Answer, Call, Later
from lakelog.broker.produce import handle, handle_any
from lakelog.broker.produce_fast import hand_over_alone
from lakelog.model.failures import Failure, OutcomeUnknown, Unavailable
from lakelog.wire.messages.produce import ProduceRequest

VERSIONS = (3, 8, 9, 12, 13)


def corrupt() -> memoryview:
    data = bytearray(batch(b"x"))
    data[-1] ^= 1
    return memoryview(data)


def requests() -> list[ProduceRequest]:
    """One after another into the same topic: good ones, repeats, gaps, and bad ones."""
    sent = [batch(b"a", b"b"), idempotent(7, 0, 0, b"a"), idempotent(7, 0, 0, b"a")]
    sent += [idempotent(7, 0, 9, b"a"), idempotent(7, 1, 0, b"a"), idempotent(7, 0, 1, b"a")]
    sent += [corrupt(), memoryview(b""), batch(b"z")]
    made = [produce(("t", [(0, data)])) for data in sent]
    made += [produce(("t", [(7, batch())])), produce(("other", [(0, batch())]))]
    made += [produce(("t", [(0, None)])), produce(("t", [(0, batch())]), acks=5)]
    made += [produce(("t", [(0, batch()), (1, batch())])), produce(("t", [])), produce()]
    return made


async def answers(stage: Stage, version: int, *, general: bool) -> list[Answer]:
    way = handle_any if general else handle
    return [
        await finish(await way(stage.broker, stage.call(version), request))
        for request in requests()
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_give_the_same_answers(version: int) -> None:
    short, general = Stage(), Stage()
    for stage in (short, general):
        stage.topic("t", 2)
    assert asyncio.run(answers(short, version, general=False)) == asyncio.run(
        answers(general, version, general=True)
    )


@pytest.mark.parametrize("failure", [OutcomeUnknown("time is over"), Unavailable("down")])
def test_both_ways_tell_a_failure_alike(failure: Failure) -> None:
    told: list[Answer] = []
    for way in (handle, handle_any):
        stage = Stage()
        stage.topic("t")
        stage.log.commit_at_once = False

        async def run(stage: Stage = stage, way: object = way) -> Answer:
            later = await way(stage.broker, stage.call(9), produce(("t", [(0, batch())])))  # type: ignore[operator]  # one of two handlers
            stage.log.held[0][2](failure)
            return await finish(later)

        told.append(asyncio.run(run()))
    assert told[0] == told[1]


def taken(stage: Stage, call: Call, sent: Sequence[ProduceRequest]) -> list[bool]:
    async def run() -> list[bool]:
        return [isinstance(hand_over_alone(stage.broker, call, request), Later) for request in sent]

    return asyncio.run(run())


def test_only_one_good_acknowledged_batch_takes_the_short_way() -> None:
    stage = Stage()
    stage.topic("t", 2)
    good = produce(("t", [(1, batch())]))
    others = [produce(("t", [(0, batch())]), acks=0), *requests()[6:8], *requests()[9:]]
    assert taken(stage, stage.call(9), [good]) == [True]
    assert not any(taken(stage, stage.call(9), others))
