import pytest
from tests.broker.classic_members import stable
from tests.broker.group_stage import GroupStage, run
from tests.broker.offset_requests import commit, commit_request, fetch, fetch_request, offset

from lakelog.broker.call import CloseConnection, Later
from lakelog.broker.lookup import PARTITIONS_MAX
from lakelog.model.failures import Unavailable
from lakelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)


def request_of(group_id: str, **topics: tuple[int, ...]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id,
        tuple(
            OffsetDeleteRequestTopic(name, tuple(map(OffsetDeleteRequestPartition, partitions)))
            for name, partitions in topics.items()
        ),
    )


async def delete(stage: GroupStage, request: OffsetDeleteRequest) -> dict[tuple[str, int], int]:
    answer = await stage.ask(request, OffsetDeleteResponse, 0)
    assert answer.error_code == 0
    return {
        (topic.name, row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    }


async def committed() -> GroupStage:
    stage = GroupStage()
    for name in ("t", "u"):
        stage.topic(name, 3)
        await commit(stage, commit_request(offset(0, 5), offset(1, 6), topic=name))
    return stage


def test_offsets_are_forgotten_and_what_is_unknown_is_3() -> None:
    async def scenario() -> None:
        stage = await committed()
        asked = request_of("g", nosuch=(0,), t=(7, 0, 2), u=(1,))
        assert await delete(stage, asked) == {
            ("nosuch", 0): 3,
            ("t", 7): 3,
            ("t", 0): 0,
            ("t", 2): 0,
            ("u", 1): 0,
        }
        assert set(await fetch(stage, fetch_request())) == {("t", 1), ("u", 0)}

    run(scenario())


def test_topics_that_members_subscribe_to_are_86_and_the_others_are_forgotten() -> None:
    async def scenario() -> None:
        stage = await committed()
        await stable(stage)
        assert await delete(stage, request_of("g", t=(0,), u=(0,))) == {("t", 0): 86, ("u", 0): 0}
        assert set(await fetch(stage, fetch_request())) == {("t", 0), ("t", 1), ("u", 1)}

    run(scenario())


@pytest.mark.parametrize(("group_id", "code"), [("none", 69), ("", 24)])
def test_what_is_wrong_with_the_group_is_at_the_top(group_id: str, code: int) -> None:
    async def scenario() -> None:
        stage = await committed()
        for request in (request_of(group_id, t=(0,)), request_of(group_id, nosuch=(0,))):
            answer = await stage.ask(request, OffsetDeleteResponse, 0)
            assert answer == OffsetDeleteResponse(error_code=code)

    run(scenario())


def test_a_draining_broker_sends_admins_away() -> None:
    async def scenario() -> None:
        stage = await committed()
        stage.groups.is_draining = True
        answer = await stage.ask(request_of("g", t=(0,)), OffsetDeleteResponse, 0)
        assert answer == OffsetDeleteResponse(error_code=16)

    run(scenario())


def test_a_topic_that_cannot_be_looked_up_is_15() -> None:
    async def scenario() -> None:
        stage = await committed()
        stage.topics.failure = Unavailable("no answer")
        assert await delete(stage, request_of("g", new=(0,), t=(0,))) == {
            ("new", 0): 15,
            ("t", 0): 0,
        }

    run(scenario())


def test_a_deletion_has_its_place_in_the_log_when_the_handler_returns() -> None:
    async def scenario() -> None:
        stage = await committed()
        stage.groups.is_held = True
        before = len(stage.groups.taken)
        assert isinstance(await stage.begin(request_of("g", t=(0,)), 0), Later)
        assert len(stage.groups.taken) == before + 1

    run(scenario())


def test_a_request_of_too_many_partitions_closes_the_connection() -> None:
    with pytest.raises(CloseConnection):
        run(GroupStage().begin(request_of("g", t=(0,) * (PARTITIONS_MAX + 1)), 0))
