import asyncio

from tests.broker.data_requests import (
    codes,
    commit,
    fetch,
    fetch_finished,
    fetching,
    one,
    rows,
    run,
    sizes,
)
from tests.broker.data_stage import DataStage

from lakelog.broker.fetch import handle
from lakelog.wire.messages.fetch import (
    FetchForgottenTopic,
    FetchRequest,
    FetchResponse,
)


def test_an_incremental_session_sends_changes_only_and_serves_all_in_turn() -> None:
    stage = DataStage()
    stage.topic("t", 3)

    async def poll() -> None:
        size = commit(stage, 1, b"x" * 50)
        commit(stage, 2, b"x" * 50)
        commit(stage, 3, b"x" * 50)
        request = fetch(("t", [(0, 0), (1, 0), (2, 0)]), session=(0, 0), max_bytes=size)
        first = await fetching(stage, request)
        assert sizes(first) == [size, 0, 0]
        assert first.session_id > 0
        served = []
        for epoch in range(1, 5):
            # The client never moves on, so only the order decides who is served.
            answer = await fetching(stage, fetch(session=(first.session_id, epoch), max_bytes=size))
            assert answer.session_id == first.session_id
            served += [row.partition_index for row in rows(answer)]
        assert served == [0, 1, 2, 0]

    run(poll)


def test_session_errors_have_their_codes_id_0_and_no_topics() -> None:
    stage = DataStage()
    stage.topic("t")

    async def poll() -> None:
        opened = await fetching(stage, fetch(("t", [(0, 0)]), session=(0, 0)))
        number = opened.session_id
        for session, version, code in (
            ((number + 1, 1), 12, 70),
            ((number, 9), 12, 71),
            ((number, 1), 13, 106),
        ):
            answer = await fetching(stage, fetch(session=session), version)
            assert answer == FetchResponse(error_code=code)

    run(poll)


def test_forgotten_topics_are_read_no_more() -> None:
    stage = DataStage()
    stage.topic("t", 2)

    async def poll() -> None:
        opened = await fetching(stage, fetch(("t", [(0, 0), (1, 0)]), session=(0, 0)))
        commit(stage, 1, b"a")
        commit(stage, 2, b"b")
        request = FetchRequest(
            session_id=opened.session_id,
            session_epoch=1,
            forgotten_topics_data=(FetchForgottenTopic(topic="t", partitions=(0,)),),
        )
        answer = await fetching(stage, request)
        assert [row.partition_index for row in rows(answer)] == [1]

    run(poll)


def test_a_parked_incremental_fetch_whose_session_moved_on_is_71() -> None:
    stage = DataStage()
    stage.topic("t")

    async def poll() -> None:
        opened = await fetching(stage, fetch(("t", [(0, 0)]), session=(0, 0)))
        parked = await handle(
            stage.broker, stage.call(12), fetch(session=(opened.session_id, 1), wait_ms=60_000)
        )
        waiting = asyncio.create_task(fetch_finished(parked))
        await asyncio.sleep(0)
        await fetching(stage, fetch(session=(opened.session_id, 2)))
        commit(stage, 1, b"a")
        assert await waiting == FetchResponse(error_code=71)

    run(poll)


def test_a_session_survives_a_topic_that_is_made_again_under_its_name() -> None:
    stage = DataStage()
    stage.topic("t")

    async def poll() -> None:
        opened = await fetching(stage, fetch(("t", [(0, 0)]), session=(0, 0)))
        del stage.topics.by_name["t"]
        stage.log.drop(1)
        gone = await fetching(stage, fetch(session=(opened.session_id, 1)))
        assert codes(gone) == [3]
        stage.topic("t")
        commit(stage, 2, b"again")
        back = await fetching(stage, fetch(session=(opened.session_id, 2)))
        assert codes(back) == [0]
        assert one(back).high_watermark == 1

    run(poll)
