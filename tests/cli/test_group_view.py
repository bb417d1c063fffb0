"""What is told of groups: lag, members of both protocols, and lists of many brokers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.cli.group_view import (
    BrokerGroups,
    GroupMemberView,
    Position,
    classic_facts,
    consumer_facts,
    joined,
    lag_ms,
    lag_records,
    partitions_text,
    remark,
    row,
)
from lakelog.kafka_client.admin import TopicPartition
from lakelog.kafka_client.metadata import ClusterNode
from lakelog.kafka_client.setting_keys import BrokerAddress
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
from lakelog.wire.messages.list_groups import ListedGroup

AT = TopicPartition("orders", 0)
NOW_MS = 1_800_000_000_000


def position(
    committed: int | None, *, start: int = 10, end: int = 20, unread_ms: int | None = None
) -> Position:
    return Position(AT, committed, start, end, unread_ms)


@pytest.mark.parametrize(
    ("committed", "lag", "said"),
    [
        (10, 10, ""),
        (15, 5, ""),
        (20, 0, ""),
        (7, 10, "below the log start, 10"),
        (-3, 10, "below the log start, 10"),
        (25, 0, "beyond the end"),
        (None, None, ""),
    ],
)
def test_lag_is_what_is_left_to_read(committed: int | None, lag: int | None, said: str) -> None:
    assert lag_records(position(committed)) == lag
    assert remark(position(committed)) == said


def test_seconds_are_the_age_of_the_first_unread_record() -> None:
    assert lag_ms(position(15, unread_ms=NOW_MS - 2500), NOW_MS) == 2500
    assert lag_ms(position(20), NOW_MS) == 0
    assert lag_ms(position(25), NOW_MS) == 0


def test_a_record_from_the_future_has_not_waited() -> None:
    assert lag_ms(position(15, unread_ms=NOW_MS + 1), NOW_MS) == 0


def test_what_nobody_knows_is_none() -> None:
    gone = Position(AT, 5, trouble="no such topic")
    assert (lag_records(gone), lag_ms(gone, NOW_MS), remark(gone)) == (None, None, "no such topic")
    assert lag_ms(position(None), NOW_MS) is None
    assert lag_ms(position(15), NOW_MS) is None  # the record could not be read
    assert lag_ms(position(15, unread_ms=-1), NOW_MS) is None  # a record without a timestamp


def test_markers_are_counted_and_wait_for_nobody() -> None:
    markers = Position(AT, 19, 10, 20, only_markers=True)
    assert (lag_records(markers), lag_ms(markers, NOW_MS)) == (1, 0)


def test_a_row_has_what_a_table_shows() -> None:
    assert row(position(15, unread_ms=NOW_MS - 2500), NOW_MS) == {
        "topic": "orders",
        "partition": 0,
        "committed": 15,
        "end": 20,
        "lag": 5,
        "seconds": 2.5,
        "note": "",
    }


@given(st.integers(-5, 40), st.integers(0, 30), st.integers(0, 30))
def test_lag_is_never_more_than_there_is_and_never_less_than_nothing(
    committed: int, start: int, size: int
) -> None:
    lag = lag_records(position(committed, start=start, end=start + size))
    assert lag is not None
    assert 0 <= lag <= size
    assert (lag == 0) == (committed >= start + size or size == 0)


ASSIGNMENT = encode_assignment(
    ConsumerAssignment(
        (ConsumerTopicPartitions("b", (1,)), ConsumerTopicPartitions("a", (3, 0, 1)))
    )
)


def classic(
    *, metadata: bytes = b"", assignment: bytes = b"", client: str = "c", kind: str = "consumer"
) -> GroupMemberView:
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
    assert found == GroupMemberView("m", "i", "c", "10.0.0.1", None, {"a": (0, 1, 3), "b": (1,)})
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
        GroupMemberView("m", None, "zone_id=z", "10.0.0.1", "r", {"a": (0,)}, {"a": (0, 1)}, 4),
    )
    assert found.assigned() == [TopicPartition("a", 0), TopicPartition("a", 1)]


def test_partitions_are_written_as_runs() -> None:
    assert partitions_text({"a": (0,)}) == "a:0"
    assert partitions_text({"a": (0, 1, 2, 5, 7, 8)}) == "a:0-2,5,7-8"
    assert partitions_text({}) == "-"


ONE = ClusterNode(1, BrokerAddress("a", 9092))
TWO = ClusterNode(2, BrokerAddress("b", 9092))


def test_a_group_that_two_brokers_tell_is_listed_once() -> None:
    rows = joined(
        [
            BrokerGroups(
                ONE, (ListedGroup("z", "consumer", "Stable", "classic"), ListedGroup("m"))
            ),
            BrokerGroups(TWO, (ListedGroup("a", "", "Empty", "consumer"), ListedGroup("z"))),
            BrokerGroups(ClusterNode(3, BrokerAddress("c", 1)), failure="nobody answers"),
        ]
    )
    assert [(row["group"], row["coordinator"]) for row in rows] == [("a", 2), ("m", 1), ("z", 1)]
    assert rows[2] == {
        "group": "z",
        "state": "Stable",
        "type": "classic",
        "protocol": "consumer",
        "coordinator": 1,
        "address": "a:9092",
    }


def test_what_an_old_broker_does_not_tell_is_not_known() -> None:
    (row,) = joined([BrokerGroups(ONE, (ListedGroup("g"),))])
    assert (row["state"], row["type"], row["protocol"]) == (None, None, None)
