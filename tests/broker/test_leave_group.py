import pytest
from tests.broker.classic_members import stable
from tests.broker.group_stage import GroupStage, run

from lakelog.broker.call import NAMED_MAX, CloseConnection, Later
from lakelog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)


@pytest.mark.parametrize("version", range(3))
def test_until_v2_one_member_leaves_and_its_code_is_at_the_top(version: int) -> None:
    async def scenario() -> None:
        stage = GroupStage()
        member = await stable(stage)

        async def code(member_id: str, group_id: str = "g") -> int:
            request = LeaveGroupRequest(group_id, member_id=member_id)
            answer = await stage.ask(request, LeaveGroupResponse, version)
            assert answer.members == ()
            return answer.error_code

        assert await code("zz") == 25
        assert await code(member.member_id, "none") == 25
        assert await code(member.member_id) == 0
        assert await code(member.member_id) == 25

    run(scenario())


@pytest.mark.parametrize("version", range(3, 6))
def test_from_v3_on_each_member_has_its_code(version: int) -> None:
    async def scenario() -> None:
        stage = GroupStage()
        member = await stable(stage)
        request = LeaveGroupRequest(
            "g", (MemberIdentity("zz"), MemberIdentity(member.member_id, None, "bye"))
        )
        answer = await stage.ask(request, LeaveGroupResponse, version)
        assert answer.error_code == 0
        assert answer.members == (
            MemberResponse("zz", None, 25),
            MemberResponse(member.member_id, None, 0),
        )

    run(scenario())


def test_a_static_member_leaves_by_its_instance_and_is_told_by_what_was_asked() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        await stable(stage, instance_id="i1")
        request = LeaveGroupRequest("g", (MemberIdentity("", "i1"), MemberIdentity("", "nope")))
        answer = await stage.ask(request, LeaveGroupResponse, 5)
        assert answer.members == (MemberResponse("", "i1", 0), MemberResponse("", "nope", 25))

    run(scenario())


def test_an_unknown_group_is_25_for_each_member_and_nothing_at_the_top() -> None:
    request = LeaveGroupRequest("none", (MemberIdentity("a"), MemberIdentity("b")))
    answer = run(GroupStage().ask(request, LeaveGroupResponse, 5))
    assert answer.error_code == 0
    assert [member.error_code for member in answer.members] == [25, 25]


def test_what_is_wrong_with_the_whole_request_is_at_the_top_in_every_version() -> None:
    for version in range(6):
        request = LeaveGroupRequest("", (MemberIdentity("a"),), "a")
        answer = run(GroupStage().ask(request, LeaveGroupResponse, version))
        assert answer == LeaveGroupResponse(error_code=24)


def test_a_leave_has_its_place_in_the_log_when_the_handler_returns() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        stage.groups.is_held = True
        begun = await stage.begin(LeaveGroupRequest("g", (MemberIdentity("a"),)), 5)
        assert isinstance(begun, Later)
        assert len(stage.groups.taken) == 1

    run(scenario())


def test_too_many_members_close_the_connection() -> None:
    members = (MemberIdentity("m"),) * (NAMED_MAX + 1)
    with pytest.raises(CloseConnection):
        run(GroupStage().begin(LeaveGroupRequest("g", members), 5))
