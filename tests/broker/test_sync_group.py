import pytest
from msgspec.structs import replace
from tests.broker.classic_members import Joined, join_request, joined
from tests.broker.group_stage import GroupStage, run, settled, told

from lakelog.broker.call import NAMED_MAX, CloseConnection, Later
from lakelog.wire.messages.join_group import JoinGroupResponse
from lakelog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)


def request_of(member: Joined, **assigned: bytes) -> SyncGroupRequest:
    return SyncGroupRequest(
        "g",
        member.generation,
        member.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=tuple(
            SyncGroupRequestAssignment(member_id, assignment)
            for member_id, assignment in assigned.items()
        ),
    )


async def two_joined(stage: GroupStage) -> tuple[Joined, Joined]:
    """A leader and a follower in one generation."""
    begun = [await stage.begin(join_request(), 3) for _ in range(2)]
    stage.groups.run_out("g")
    answers = [told(await settled(one), JoinGroupResponse, 3) for one in begun]
    members = [Joined(answer.member_id, answer.generation_id) for answer in answers]
    leader = answers[0].leader
    members.sort(key=lambda member: member.member_id != leader)
    return members[0], members[1]


@pytest.mark.parametrize("version", range(6))
def test_a_follower_waits_for_the_leader_and_both_get_what_it_says(version: int) -> None:
    async def scenario() -> None:
        stage = GroupStage()
        leader, follower = await two_joined(stage)
        waiting = await stage.begin(request_of(follower), version)
        assert isinstance(waiting, Later)
        assigned = {leader.member_id: b"for the leader", follower.member_id: b"for the other"}
        request = replace(
            request_of(leader),
            assignments=tuple(SyncGroupRequestAssignment(*pair) for pair in assigned.items()),
        )
        answers = [
            await stage.ask(request, SyncGroupResponse, version),
            told(await settled(waiting), SyncGroupResponse, version),
        ]
        assert [answer.error_code for answer in answers] == [0, 0]
        assert [answer.assignment for answer in answers] == list(assigned.values())
        protocol = ("consumer", "range") if version >= 5 else (None, None)
        assert {(answer.protocol_type, answer.protocol_name) for answer in answers} == {protocol}

    run(scenario())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"generation_id": 7}, 22),
        ({"member_id": "zz"}, 25),
        ({"group_id": "none"}, 25),
        ({"protocol_name": "roundrobin"}, 23),
        ({"protocol_name": None}, 23),
        ({"protocol_type": None}, 23),
    ],
)
def test_refusals_have_no_assignment(change: dict[str, object], code: int) -> None:
    async def scenario() -> None:
        stage = GroupStage()
        member = await joined(stage)
        request = replace(request_of(member), **change)
        answer = await stage.ask(request, SyncGroupResponse, 5)
        assert answer == SyncGroupResponse(error_code=code)

    run(scenario())


def test_before_v5_nobody_names_the_protocol() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        member = await joined(stage)
        request = SyncGroupRequest("g", member.generation, member.member_id)
        assert (await stage.ask(request, SyncGroupResponse, 4)).error_code == 0

    run(scenario())


def test_too_many_assignments_close_the_connection() -> None:
    assignments = (SyncGroupRequestAssignment("m"),) * (NAMED_MAX + 1)
    with pytest.raises(CloseConnection):
        run(GroupStage().begin(SyncGroupRequest("g", 1, "m", assignments=assignments), 3))
