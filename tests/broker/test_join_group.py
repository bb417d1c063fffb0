import pytest
from msgspec.structs import replace
from tests.broker.classic_members import SUBSCRIPTION, join_request, joined
from tests.broker.group_stage import GroupStage, run, settled, told

from lakelog.broker.call import NAMED_MAX, CloseConnection, Later
from lakelog.groups.events import Join
from lakelog.groups.state import ClassicGroup
from lakelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)


def ask(stage: GroupStage, request: JoinGroupRequest, version: int) -> JoinGroupResponse:
    return run(stage.ask(request, JoinGroupResponse, version))


def test_a_join_waits_in_its_place_until_there_is_a_generation() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        begun = await stage.begin(join_request(), 3)
        assert isinstance(begun, Later)
        assert [type(event) for event in stage.groups.taken] == [Join]
        stage.groups.run_out("g")
        answer = told(await settled(begun), JoinGroupResponse, 3)
        assert answer.error_code == 0
        assert answer.generation_id == 1
        assert answer.protocol_name == "range"
        assert answer.member_id == answer.leader == "probe-0"
        assert answer.members == (JoinGroupResponseMember("probe-0", None, SUBSCRIPTION),)

    run(scenario())


def test_what_a_member_says_of_itself_is_what_the_group_knows() -> None:
    async def scenario() -> None:
        stage = GroupStage().as_client(None)
        await joined(stage, instance_id="i1")
        group = stage.groups.group("g")
        assert isinstance(group, ClassicGroup)
        (member,) = group.members.values()
        assert member.instance_id == "i1"
        assert (member.client_id, member.client_host) == ("", "/127.0.0.2")
        assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 20_000)
        assert member.protocols == (("range", SUBSCRIPTION),)

    run(scenario())


def test_v0_has_one_time_out_for_session_and_rebalance() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        request = replace(join_request(), rebalance_timeout_ms=-1)
        begun = await stage.begin(request, 0)
        stage.groups.run_out("g")
        await settled(begun)
        group = stage.groups.group("g")
        assert isinstance(group, ClassicGroup)
        assert [member.rebalance_timeout_ms for member in group.members.values()] == [10_000]

    run(scenario())


@pytest.mark.parametrize("version", range(4, 10))
def test_a_dynamic_member_is_sent_away_with_its_id(version: int) -> None:
    stage = GroupStage()
    answer = ask(stage, join_request(), version)
    assert (answer.error_code, answer.member_id, answer.generation_id) == (79, "probe-0", -1)
    assert stage.groups.taken == []


@pytest.mark.parametrize("version", range(10))
def test_an_error_has_the_empty_protocol_name_until_v6_and_null_after(version: int) -> None:
    request = join_request("abc", session_timeout_ms=1)
    answer = ask(GroupStage(), request, version)
    assert answer == JoinGroupResponse(
        error_code=26, member_id="abc", protocol_name="" if version < 7 else None
    )


def test_the_group_has_the_last_word() -> None:
    stage = GroupStage()
    assert ask(stage, join_request("gone"), 9).error_code == 25
    assert ask(stage, join_request(group_id=""), 9).error_code == 24
    stage.groups.is_draining = True
    assert ask(stage, join_request(), 9).error_code == 16


def test_too_many_protocols_close_the_connection() -> None:
    protocols = (JoinGroupRequestProtocol("p"),) * (NAMED_MAX + 1)
    with pytest.raises(CloseConnection):
        ask(GroupStage(), replace(join_request(), protocols=protocols), 9)
