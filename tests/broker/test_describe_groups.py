import pytest
from tests.broker import consumer_members
from tests.broker.classic_members import SUBSCRIPTION, join_request, joined, stable
from tests.broker.group_stage import LONE, FixedCluster, GroupStage, run
from tests.broker.offset_requests import commit, commit_request, offset

from lakelog.broker.call import NAMED_MAX, CloseConnection
from lakelog.groups.table import domain_index
from lakelog.wire.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsDescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NONE = -2147483648
ALL = 3400


async def describe(
    stage: GroupStage, *groups: str, version: int = 6, operations: bool = False
) -> tuple[DescribeGroupsDescribedGroup, ...]:
    request = DescribeGroupsRequest(groups, include_authorized_operations=operations)
    return (await stage.ask(request, DescribeGroupsResponse, version)).groups


@pytest.mark.parametrize("version", range(7))
def test_a_stable_group_tells_everything(version: int) -> None:
    async def scenario() -> None:
        stage = GroupStage()
        member = await stable(stage, instance_id="i")
        (found,) = await describe(stage, "g", version=version)
        instance_id = "i" if version >= 4 else None
        shown = DescribedGroupMember(
            member.member_id, instance_id, "probe", "/127.0.0.2", SUBSCRIPTION, b"mine"
        )
        assert found == DescribeGroupsDescribedGroup(
            0, None, "g", "Stable", "consumer", "range", (shown,)
        )

    run(scenario())


def test_in_other_states_metadata_and_protocol_are_not_told() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        stage.topic("t")
        await joined(stage, "completing")
        await stable(stage, "preparing")
        await stage.begin(join_request(group_id="preparing"), 3)
        await commit(stage, commit_request(offset(0, 1), group_id="simple"))
        found = await describe(stage, "completing", "preparing", "simple")
        assert [(one.group_state, one.protocol_data, len(one.members)) for one in found] == [
            ("CompletingRebalance", "", 1),
            ("PreparingRebalance", "", 2),
            ("Empty", "", 0),
        ]
        assert [one.protocol_type for one in found] == ["consumer", "consumer", ""]
        members = [member for one in found for member in one.members]
        assert {member.member_metadata for member in members} == {b""}
        # Who has not joined again yet still works on what it was given last.
        assert [member.member_assignment for member in members] == [b"", b"mine", b""]
        assert {member.client_host for member in members} == {"/127.0.0.2"}

    run(scenario())


def test_groups_that_are_not_there_or_not_classic_are_dead_and_69_from_v6_on() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        stage.topic("t")
        await consumer_members.beat(stage, consumer_members.join_request("m", "t"))
        for version in range(6):
            for one in await describe(stage, "none", "k", "", version=version):
                assert (one.error_code, one.group_state, one.members) == (0, "Dead", ())
        found = await describe(stage, "none", "k", operations=True)
        assert [(one.error_code, one.group_state) for one in found] == [(69, "Dead")] * 2
        assert [one.error_message for one in found] == [
            "Group none not found.",
            "Group k is not a classic group.",
        ]
        assert {one.authorized_operations for one in found} == {NONE}

    run(scenario())


def test_operations_are_told_from_v3_on_to_who_asks() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        await stable(stage)
        for version in range(7):
            (quiet,) = await describe(stage, "g", version=version)
            assert quiet.authorized_operations == NONE
        for version in range(3, 7):
            (told,) = await describe(stage, "g", version=version, operations=True)
            assert told.authorized_operations == ALL
        (dead,) = await describe(stage, "none", version=5, operations=True)
        assert dead.authorized_operations == ALL

    run(scenario())


def test_a_group_that_stands_twice_is_described_once() -> None:
    found = run(describe(GroupStage(), "a", "b", "a"))
    assert [one.group_id for one in found] == ["a", "b"]


def test_a_domain_that_cannot_be_proved_takes_no_other_groups_down() -> None:
    async def scenario() -> None:
        stage = GroupStage(cluster=FixedCluster(LONE, domains=4))
        stage.groups.stale_domains = {1}
        names = [f"group-{number}" for number in range(20)]
        found = await describe(stage, *names)
        assert {one.group_id: one.error_code for one in found} == {
            name: 15 if domain_index(name, 4) == 1 else 69 for name in names
        }

    run(scenario())


def test_a_request_of_too_many_groups_closes_the_connection() -> None:
    with pytest.raises(CloseConnection):
        run(describe(GroupStage(), *("g",) * (NAMED_MAX + 1)))
