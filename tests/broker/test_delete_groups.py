import pytest
from tests.broker.classic_members import stable
from tests.broker.group_stage import GroupStage, run
from tests.broker.offset_requests import commit, commit_request, fetch, fetch_request, offset

from lakelog.broker.call import NAMED_MAX, CloseConnection
from lakelog.groups.events import DeleteGroup
from lakelog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def delete(stage: GroupStage, *names: str, version: int = 2) -> dict[str, int]:
    answer = await stage.ask(DeleteGroupsRequest(names), DeleteGroupsResponse, version)
    assert answer.throttle_time_ms == 0
    return {result.group_id: result.error_code for result in answer.results}


@pytest.mark.parametrize("version", range(3))
def test_only_groups_without_members_are_deleted_with_their_offsets(version: int) -> None:
    async def scenario() -> None:
        stage = GroupStage()
        stage.topic("t")
        await stable(stage, "live")
        for group_id in ("idle", ""):
            await commit(stage, commit_request(offset(0, 5), group_id=group_id))
        found = await delete(stage, "live", "none", "idle", "", version=version)
        assert found == {"live": 68, "none": 69, "idle": 0, "": 0}
        assert await fetch(stage, fetch_request("idle")) == {}
        assert await delete(stage, "idle", version=version) == {"idle": 69}

    run(scenario())


def test_a_group_that_stands_twice_is_deleted_and_answered_once() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        stage.topic("t")
        await commit(stage, commit_request(offset(0, 5)))
        request = DeleteGroupsRequest(("g", "none", "g"))
        answer = await stage.ask(request, DeleteGroupsResponse, 2)
        assert answer.results == (DeletableGroupResult("g", 0), DeletableGroupResult("none", 69))

    run(scenario())


def test_every_group_has_its_place_in_the_log_when_the_handler_returns() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        stage.groups.is_held = True
        await stage.begin(DeleteGroupsRequest(("a", "b", "c")), 2)
        assert stage.groups.taken == [DeleteGroup("a"), DeleteGroup("b"), DeleteGroup("c")]

    run(scenario())


def test_no_groups_are_no_results() -> None:
    assert run(delete(GroupStage())) == {}


def test_a_draining_broker_sends_admins_away() -> None:
    stage = GroupStage()
    stage.groups.is_draining = True
    assert run(delete(stage, "g")) == {"g": 16}


def test_a_request_of_too_many_groups_closes_the_connection() -> None:
    with pytest.raises(CloseConnection):
        run(delete(GroupStage(), *("g",) * (NAMED_MAX + 1)))
