"""What coordinators answer, in one shape for both protocols."""

from lakelog.cli.group_facts import Member, classic_facts, consumer_facts, partitions_text
from lakelog.cli.group_lag import TopicPartition
from lakelog.wire.codec import (
    ConsumerAssignment,
    ConsumerSubscription,
    ConsumerTopicPartitions,
    encode_assignment,
    encode_subscription,
)
from lakelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeTopicPartitions,
)
from lakelog.wire.messages.describe_groups import DescribedGroupMember, DescribeGroupsDescribedGroup

ASSIGNMENT = encode_assignment(
    ConsumerAssignment(
        (ConsumerTopicPartitions("b", (1,)), ConsumerTopicPartitions("a", (3, 0, 1)))
    )
)


def classic(
    *, metadata: bytes = b"", assignment: bytes = b"", client: str = "c", kind: str = "consumer"
) -> Member:
    member = DescribedGroupMember("m", "i", client, "/10.0.0.1", metadata, assignment)
    found = DescribeGroupsDescribedGroup(
        group_id="g",
        group_state="Stable",
        protocol_type=kind,
        protocol_data="range",
        members=(member,),
    )
    return classic_facts(found).members[0]


def consumer(assigned: dict[str, tuple[int, ...]]) -> ConsumerGroupDescribeAssignment:
    return ConsumerGroupDescribeAssignment(
        tuple(
            ConsumerGroupDescribeTopicPartitions(b"i" * 16, topic, indexes)
            for topic, indexes in assigned.items()
        )
    )


def test_a_classic_members_assignment_is_read_from_its_bytes() -> None:
    found = classic(assignment=ASSIGNMENT)
    assert found == Member("m", "i", "c", "10.0.0.1", None, {"a": (0, 1, 3), "b": (1,)})
    assert partitions_text(found.assigned) == "a:0-1,3 b:1"


def test_bytes_that_are_no_assignment_are_unknown() -> None:
    assert partitions_text(classic(assignment=b"\x00\x01garbage").assigned) == "?"
    assert partitions_text(classic(assignment=ASSIGNMENT, kind="connect").assigned) == "?"
    assert partitions_text(classic(assignment=b"").assigned) == "-"


def test_the_zone_is_the_rack_or_what_the_client_id_says() -> None:
    racked = encode_subscription(ConsumerSubscription(("a",), rack_id="r"))
    unracked = encode_subscription(ConsumerSubscription(("a",), rack_id=""))
    assert classic(metadata=racked, client="zone_id=z").zone == "r"
    assert classic(metadata=unracked, client="zone_id=z,app=x").zone == "z"
    assert classic(metadata=b"\x00\x03junk", client="zone_id=z").zone == "z"
    assert classic(metadata=unracked).zone is None


def test_a_consumer_group_has_epochs_and_targets() -> None:
    member = ConsumerGroupDescribeMember(
        "m",
        None,
        "r",
        4,
        "zone_id=z",
        "/10.0.0.1",
        assignment=consumer({"a": (0,)}),
        target_assignment=consumer({"a": (0, 1)}),
    )
    found = consumer_facts(
        ConsumerGroupDescribeDescribedGroup(
            group_id="g",
            group_state="Reconciling",
            group_epoch=5,
            assignment_epoch=4,
            assignor_name="uniform",
            members=(member,),
        )
    )
    assert (found.type, found.state, found.assignor) == ("consumer", "Reconciling", "uniform")
    assert (found.epoch, found.assignment_epoch) == (5, 4)
    assert found.members == (
        Member("m", None, "zone_id=z", "10.0.0.1", "r", {"a": (0,)}, {"a": (0, 1)}, 4),
    )
    assert found.assigned() == [TopicPartition("a", 0), TopicPartition("a", 1)]


def test_partitions_are_written_as_runs() -> None:
    assert partitions_text({"a": (0,)}) == "a:0"
    assert partitions_text({"a": (0, 1, 2, 5, 7, 8)}) == "a:0-2,5,7-8"
    assert partitions_text({}) == "-"
