import asyncio

import pytest
from tests.broker.data_requests import produce, produced, produced_codes, produced_rows
from tests.broker.data_stage import DataStage, SetClock, batch, idempotent
from tests.broker.whole import finish

from lakelog.broker import produce_checks
from lakelog.broker.call import Answer, CloseConnection, Later, NoAnswer
from lakelog.broker.produce import handle
from lakelog.clock import SeededEntropy
from lakelog.log.values import Appended
from lakelog.model.errors import RETRIABLE, ErrorCode
from lakelog.model.failures import Failure, OutcomeUnknown, Unavailable
from lakelog.records.build import BatchOptions
from lakelog.records.codecs import Codec


def test_requests_take_their_places_in_the_order_they_are_accepted_before_any_is_answered() -> None:
    stage = DataStage()
    stage.topic("t")
    stage.log.commit_at_once = False

    async def run() -> list[int]:
        waiting = [
            await handle(stage.broker, stage.call(9), produce(("t", [(0, batch(b"%d" % number))])))
            for number in range(5)
        ]
        assert all(isinstance(one, Later) for one in waiting)
        assert len(stage.log.held) == 5
        stage.log.commit_held()
        # Answered in any order: what counts is the place that was taken.
        made = [produced_rows(await finish(one))[0].base_offset for one in reversed(waiting)]
        return made[::-1]

    assert asyncio.run(run()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (OutcomeUnknown("time is over"), ErrorCode.REQUEST_TIMED_OUT),
        (Unavailable("the store is down"), ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_a_failed_append_answers_what_is_known_of_its_outcome(
    failure: Failure, code: ErrorCode
) -> None:
    stage = DataStage()
    stage.topic("t", 2)
    stage.log.commit_at_once = False

    async def run() -> Answer:
        later = await handle(
            stage.broker, stage.call(9), produce(("t", [(0, batch()), (7, batch()), (1, batch())]))
        )
        stage.log.held[0][2](failure)
        return await finish(later)

    assert produced_codes(produced_rows(asyncio.run(run()))) == [code, 3, code]


def test_partitions_of_one_request_hear_of_their_own_objects() -> None:
    """L2: no partition is told what is true of another only."""
    stage = DataStage()
    stage.topic("t", 3)
    stage.log.commit_at_once = False
    failures: dict[int, Failure] = {1: Unavailable("down"), 2: OutcomeUnknown("late")}

    async def run() -> Answer:
        request = produce(("t", [(0, batch()), (1, batch()), (2, batch())]))
        later = await handle(stage.broker, stage.call(9), request)
        stage.log.held[0][2](Appended([0, 6, 6], [4, -1, -1], [-1, -1, -1], failures))
        return await finish(later)

    rows = produced_rows(asyncio.run(run()))
    assert produced_codes(rows) == [0, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT]
    assert [row.base_offset for row in rows] == [4, -1, -1]
    assert [row.error_message for row in rows] == [None, "down", "late"]


def test_a_connection_that_goes_away_does_not_take_its_append_with_it() -> None:
    stage = DataStage()
    stage.topic("t")
    stage.log.commit_at_once = False

    async def run() -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
        later = await handle(stage.broker, stage.call(9), produce(("t", [(0, batch())])))
        assert isinstance(later, Later)
        assert isinstance(later.work, asyncio.Future)
        later.work.cancel()
        stage.log.commit_held()
        await asyncio.sleep(0)
        assert complaints == []

    asyncio.run(run())
    assert len(stage.log.stored[1]) == 1


def test_no_room_until_the_deadline_writes_nothing_and_is_retriable() -> None:
    stage = DataStage()
    stage.topic("t")
    stage.log.no_room = Unavailable("full")
    made = produced_codes(produced(stage, produce(("t", [(0, batch())]))))
    assert made[0] in RETRIABLE
    assert made[0] != ErrorCode.REQUEST_TIMED_OUT
    assert stage.log.stored == {}


def test_a_stream_dropped_on_the_way_is_3_by_name_and_100_by_id() -> None:
    for version, code in ((9, 3), (13, 100)):
        stage = DataStage()
        stage.topic("t")
        stage.log.drop(1)
        assert produced_codes(produced(stage, produce(("t", [(0, batch())])), version)) == [code]


def test_acks_0_is_answered_with_nothing() -> None:
    stage = DataStage()
    stage.topic("t")

    async def run() -> Answer:
        request = produce(("t", [(0, batch())]), acks=0)
        return await finish(await handle(stage.broker, stage.call(9), request))

    assert isinstance(asyncio.run(run()), NoAnswer)
    assert len(stage.log.stored[1]) == 1


@pytest.mark.parametrize(
    ("index", "data"), [(9, batch()), (0, memoryview(b"junk")), (0, idempotent(7, 0, 3))]
)
def test_acks_0_with_any_error_closes_the_connection(index: int, data: memoryview) -> None:
    stage = DataStage()
    stage.topic("t", 2)

    async def run() -> None:
        request = produce(("t", [(1, batch()), (index, data)]), acks=0)
        with pytest.raises(CloseConnection):
            await finish(await handle(stage.broker, stage.call(9), request))

    asyncio.run(run())
    assert len(stage.log.stored[2]) == 1  # the good one is stored


def test_the_deadline_is_the_clients_within_bounds() -> None:
    stage = DataStage()
    stage.topic("t")
    for timeout_ms in (5_000, 0, -1, 2**31 - 1):
        produced(stage, produce(("t", [(0, batch())]), timeout_ms=timeout_ms))
    assert [round(at - stage.clock.monotonic, 3) for at in stage.log.deadlines_s] == [5, 1, 1, 120]


def test_a_large_compressed_batch_is_inspected_on_a_thread_and_keeps_its_place() -> None:
    stage = DataStage()
    stage.topic("t")
    noise = SeededEntropy("noise").token(200 << 10)
    large = batch(noise, options=BatchOptions(codec=Codec.LZ4))
    assert produce_checks.is_slow(large)
    assert not produce_checks.is_slow(batch(b"x" * (1 << 18)))
    made = produced(stage, produce(("t", [(0, large)])))
    assert produced_codes(made) == [0]
    assert produced_codes(produced(stage, produce(("t", [(0, large[:-1])])))) == [87]


class BusyClock(SetClock):
    """Shows more time at each look, as in a loop that is held up."""

    def monotonic_s(self) -> float:
        self.monotonic += 0.02
        return self.monotonic


def test_requests_of_many_bytes_let_others_run_between_batches() -> None:
    stage = DataStage()
    stage.topic("t", 50)
    turns = 0

    stage.clock = BusyClock()

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> None:
        counting = asyncio.create_task(count())
        request = produce(("t", [(number, batch()) for number in range(50)]), timeout_ms=60_000)
        await finish(await handle(stage.broker, stage.call(9), request))
        counting.cancel()

    asyncio.run(run())
    assert turns >= 50
