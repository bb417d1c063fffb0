import pytest
from msgspec.structs import replace
from tests.broker.classic_members import stable
from tests.broker.consumer_members import assigned, beat, beat_request, join_request
from tests.broker.group_stage import LONE, FixedCluster, GroupStage, run

from lakelog.broker.call import NAMED_MAX, CloseConnection
from lakelog.groups.state import ConsumerGroup
from lakelog.groups.table import domain_index
from lakelog.model.failures import Unavailable
from lakelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
)


async def describe(
    stage: GroupStage, *groups: str, version: int = 1, operations: bool = False
) -> tuple[ConsumerGroupDescribeDescribedGroup, ...]:
    request = ConsumerGroupDescribeRequest(groups, operations)
    return (await stage.ask(request, ConsumerGroupDescribeResponse, version)).groups


def shares(assignment: ConsumerGroupDescribeAssignment) -> dict[str, tuple[int, ...]]:
    return {topic.topic_name: topic.partitions for topic in assignment.topic_partitions}


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_tells_its_epochs_members_and_partitions(version: int) -> None:
    async def scenario() -> None:
        stage = GroupStage()
        topic = stage.topic("t", 2)
        request = replace(
            join_request("m", "t", instance_id="i", rack_id="r"), subscribed_topic_regex="nosuch"
        )
        epoch = (await beat(stage, request)).member_epoch
        owned = {topic.id: (0, 1)}
        await beat(stage, beat_request("m", epoch, owned, instance_id="i"))
        (found,) = await describe(stage, "k", version=version)
        assert (found.error_code, found.error_message, found.group_id) == (0, None, "k")
        group = stage.groups.group("k")
        assert isinstance(group, ConsumerGroup)
        assert (found.group_epoch, found.assignment_epoch) == (group.epoch, group.target_epoch)
        assert (found.group_state, found.assignor_name) == ("Stable", "uniform")
        (member,) = found.members
        assert (member.member_id, member.instance_id, member.rack_id) == ("m", "i", "r")
        assert member.member_epoch == epoch
        assert (member.client_id, member.client_host) == ("probe", "/127.0.0.2")
        assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (("t",), "nosuch")
        mine = ConsumerGroupDescribeAssignment(
            (ConsumerGroupDescribeTopicPartitions(topic.id, "t", (0, 1)),)
        )
        assert (member.assignment, member.target_assignment) == (mine, mine)
        assert member.member_type == (1 if version >= 1 else -1)

    run(scenario())


def test_what_members_have_and_what_they_shall_have_are_two_things() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        topic = stage.topic("t", 2)
        first = await beat(stage, join_request("m1", "t"))
        await beat(stage, beat_request("m1", first.member_epoch, assigned(first)))
        await beat(stage, join_request("m2", "t"))
        (found,) = await describe(stage, "k")
        assert found.group_state == "Reconciling"
        members = {member.member_id: member for member in found.members}
        assert shares(members["m1"].assignment) == {"t": (0, 1)}
        assert shares(members["m2"].assignment) == {}
        target = [shares(members[name].target_assignment)["t"] for name in ("m1", "m2")]
        assert sorted(target) == [(0,), (1,)]
        assert topic.partition_count == 2

    run(scenario())


def test_deleted_topics_are_left_out() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        stage.topic("t")
        await beat(stage, join_request("m", "t"))
        del stage.topics.by_name["t"]
        (found,) = await describe(stage, "k")
        assert shares(found.members[0].assignment) == {}
        assert shares(found.members[0].target_assignment) == {}

    run(scenario())


def test_a_static_member_that_left_for_a_while_has_epoch_minus_2() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        stage.topic("t")
        await beat(stage, join_request("m", "t", instance_id="i"))
        await beat(stage, beat_request("m", -2, instance_id="i"))
        (found,) = await describe(stage, "k")
        assert [member.member_epoch for member in found.members] == [-2]

    run(scenario())


def test_groups_that_are_not_there_or_not_of_this_protocol_are_69() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        await stable(stage)
        found = await describe(stage, "g", "none", "", operations=True)
        assert found == (
            ConsumerGroupDescribeDescribedGroup(69, "Group g is not a consumer group.", "g"),
            ConsumerGroupDescribeDescribedGroup(69, "Group none not found.", "none"),
            ConsumerGroupDescribeDescribedGroup(24, None, ""),
        )

    run(scenario())


def test_operations_are_told_to_who_asks() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        await beat(stage, join_request("m", "t"))
        (quiet,) = await describe(stage, "k")
        (told,) = await describe(stage, "k", operations=True)
        assert (quiet.authorized_operations, told.authorized_operations) == (-2147483648, 3400)

    run(scenario())


def test_a_group_that_stands_twice_is_described_once() -> None:
    found = run(describe(GroupStage(), "a", "b", "a"))
    assert [one.group_id for one in found] == ["a", "b"]


def test_a_domain_that_cannot_be_proved_takes_no_other_groups_down() -> None:
    async def scenario() -> None:
        stage = GroupStage(cluster=FixedCluster(LONE, domains=4))
        stage.groups.stale_domains = {3}
        names = [f"group-{number}" for number in range(20)]
        found = await describe(stage, *names)
        assert {one.group_id: one.error_code for one in found} == {
            name: 15 if domain_index(name, 4) == 3 else 69 for name in names
        }

    run(scenario())


def test_without_the_topics_no_partitions_are_told() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        stage.topic("t")
        await beat(stage, join_request("m", "t"))
        stage.topics.failure = Unavailable("no answer")
        assert await describe(stage, "k") == (ConsumerGroupDescribeDescribedGroup(15, None, "k"),)

    run(scenario())


def test_a_request_of_too_many_groups_closes_the_connection() -> None:
    with pytest.raises(CloseConnection):
        run(describe(GroupStage(), *("g",) * (NAMED_MAX + 1)))
