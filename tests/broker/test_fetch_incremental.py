import asyncio
from typing import Any

import pytest
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
from lakelog.broker.fetch_read import FetchRead
from lakelog.broker.fetch_sessions import Results
from lakelog.wire.codec import encode
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


def session_bytes(partitions: int) -> list[bytes]:
    """What a session hears, as it is sent: of data, trims, nothing, a drop, and of what it adds."""
    stage = DataStage()
    stage.topic("t", partitions)
    everything = [(partition, 0) for partition in range(partitions)]
    answers: list[FetchResponse] = []

    async def poll() -> None:
        opened = await fetching(stage, fetch(("t", everything), session=(0, 0)))

        async def go_on(*wants: tuple[int, int]) -> None:
            topics = [("t", list(wants))] if wants else []
            session = (opened.session_id, len(answers) + 1)
            answers.append(await fetching(stage, fetch(*topics, session=session)))

        await go_on()
        commit(stage, 2, b"two")
        commit(stage, partitions, b"last")
        await go_on()
        await go_on((1, 1), (partitions - 1, 1))  # read: they are empty now, with other marks
        await go_on()
        await stage.log.trim({2: 1})
        await go_on()
        await go_on((0, 7))  # out of range, and healed
        await go_on((0, 0))
        stage.log.drop(3)
        await go_on()
        await go_on()

    run(poll)
    return [b"".join(bytes(part) for part in encode(answer, 12)) for answer in answers]


@pytest.mark.parametrize("partitions", [4, 100])
def test_what_a_session_would_leave_out_need_not_be_made(
    partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = session_bytes(partitions)
    made = FetchRead.results

    def all_made(self: FetchRead, *, in_full: bool, told: Any) -> Results:
        del told
        return made(self, in_full=in_full, told={})

    monkeypatch.setattr(FetchRead, "results", all_made)
    assert session_bytes(partitions) == sent
    assert len(set(sent)) >= 5
