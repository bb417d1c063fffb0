import asyncio

import pytest
from tests.broker.data_requests import (
    accepted,
    codes,
    commit,
    fetch,
    fetch_finished,
    fetched,
    rows,
    run,
    sizes,
)
from tests.broker.data_stage import DataStage, batch

from lakelog.broker.call import Later
from lakelog.broker.fetch import handle


def test_a_parked_fetch_is_answered_when_data_comes() -> None:
    stage = DataStage()
    stage.topic("t", 2)

    async def wait() -> None:
        later = await handle(
            stage.broker, stage.call(12), fetch(("t", [(0, 0), (1, 0)]), wait_ms=60_000)
        )
        assert isinstance(later, Later)
        waiting = asyncio.create_task(fetch_finished(later))
        await asyncio.sleep(0)
        assert not waiting.done()
        size = commit(stage, 2, b"new")
        assert sizes(await waiting) == [0, size]

    run(wait)
    assert stage.log.proofs == 1  # that the other one is empty


def test_data_between_the_first_look_and_the_parking_is_not_missed() -> None:
    stage = DataStage()
    stage.topic("t")

    async def wait() -> None:
        later = await handle(stage.broker, stage.call(12), fetch(("t", [(0, 0)]), wait_ms=60_000))
        commit(stage, 1, b"new")
        assert sizes(await fetch_finished(later))[0] > 0

    run(wait)


def test_a_parked_fetch_waits_for_min_bytes() -> None:
    stage = DataStage()
    stage.topic("t")

    async def wait() -> None:
        size = len(batch(b"x" * 100))
        request = fetch(("t", [(0, 0)]), wait_ms=60_000, min_bytes=3 * size)
        waiting = asyncio.create_task(
            fetch_finished(await handle(stage.broker, stage.call(12), request))
        )
        for _ in range(2):
            commit(stage, 1, b"x" * 100)
            for _ in range(5):
                await asyncio.sleep(0)
            assert not waiting.done()
        commit(stage, 1, b"x" * 100)
        assert sizes(await waiting) == [3 * size]

    run(wait)


def test_a_parked_fetch_is_answered_at_max_wait_with_what_there_is() -> None:
    stage = DataStage()
    stage.topic("t")
    size = commit(stage, 1, b"little")

    async def wait() -> None:
        request = fetch(("t", [(0, 0)]), wait_ms=20, min_bytes=1 << 20)
        later = await handle(stage.broker, stage.call(12), request)
        stage.clock.monotonic += 0.021
        assert sizes(await fetch_finished(later)) == [size]
        request = fetch(("t", [(0, 1)]), wait_ms=20)
        later = await handle(stage.broker, stage.call(12), request)
        stage.clock.monotonic += 0.021
        assert sizes(await fetch_finished(later)) == [0]

    run(wait)
    assert stage.log.proofs == 1


def test_min_bytes_0_does_not_wait() -> None:
    stage = DataStage()
    stage.topic("t")
    assert sizes(fetched(stage, fetch(("t", [(0, 0)]), wait_ms=60_000, min_bytes=0))) == [0]


def test_an_unknown_partition_waits_with_good_ones_and_alone_does_not() -> None:
    stage = DataStage()
    stage.topic("t")
    assert codes(fetched(stage, fetch(("none", [(0, 0)]), wait_ms=60_000))) == [3]
    assert rows(fetched(stage, fetch(wait_ms=60_000))) == []

    async def wait() -> None:
        request = fetch(("none", [(0, 0)]), ("t", [(0, 0)]), wait_ms=60_000)
        waiting = asyncio.create_task(
            fetch_finished(await handle(stage.broker, stage.call(12), request))
        )
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        commit(stage, 1, b"a")
        assert codes(await waiting) == [3, 0]

    run(wait)


def test_read_errors_answer_at_once_beside_partitions_that_would_wait() -> None:
    stage = DataStage()
    stage.topic("t", 2)
    assert codes(fetched(stage, fetch(("t", [(0, 9), (1, 0)]), wait_ms=60_000))) == [1, 0]


def test_a_stream_dropped_while_its_reader_is_parked_is_answered_at_once() -> None:
    stage = DataStage()
    stage.topic("t")

    async def wait(version: int, code: int) -> None:
        stage.log.create(1)
        request = fetch(("t", [(0, 0)]), wait_ms=60_000)
        waiting = asyncio.create_task(
            fetch_finished(await handle(stage.broker, stage.call(version), request))
        )
        await asyncio.sleep(0)
        stage.log.drop(1)
        assert codes(await waiting) == [code]

    run(lambda: wait(12, 3))
    run(lambda: wait(13, 100))


def test_a_parked_fetch_ends_with_its_connection() -> None:
    stage = DataStage()
    stage.topic("t")

    async def wait() -> None:
        request = fetch(("t", [(0, 0)]), wait_ms=60_000)
        waiting = asyncio.create_task(
            fetch_finished(await handle(stage.broker, stage.call(12), request))
        )
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert stage.log.board._watches == {}

    run(wait)


def test_parked_fetches_are_answered_when_the_broker_drains() -> None:
    stage = DataStage()
    stage.topic("t")

    async def wait() -> None:
        request = fetch(("t", [(0, 0)]), wait_ms=300_000)
        waiting = asyncio.create_task(
            fetch_finished(await handle(stage.broker, stage.call(12), request))
        )
        await asyncio.sleep(0)
        stage.fetch_sessions.draining = True
        stage.log.board.notify_all()
        assert sizes(await waiting) == [0]

    run(wait)
    assert sizes(fetched(stage, fetch(("t", [(0, 0)]), wait_ms=300_000))) == [0]


def test_an_offset_that_a_proof_shows_to_be_the_end_waits_for_data() -> None:
    stage = DataStage()
    stage.topic("t")
    stage.log.foreign.append((1, accepted(batch(b"a", b"b"))))

    async def wait() -> None:
        later = await handle(stage.broker, stage.call(12), fetch(("t", [(0, 2)]), wait_ms=60_000))
        waiting = asyncio.create_task(fetch_finished(later))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        size = commit(stage, 1, b"c")
        assert sizes(await waiting) == [size]

    run(wait)
    assert stage.log.proofs == 1
