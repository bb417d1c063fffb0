"""Members read from their bytes, whatever those are."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakelog.discovery.assignment import by_topic
from lakelog.discovery.config import KafkaDiscoveryConfig
from lakelog.discovery.member_state import make_member
from lakelog.discovery.node import NodeMetadata, NodeState
from lakelog.discovery.partition_ids import PartitionIds
from lakelog.discovery.roster import RawMember, hash_of, nodes_of, read_member
from lakelog.wire.codec import (
    ConsumerAssignment,
    ConsumerSubscription,
    encode_assignment,
    encode_subscription,
)

IDS = PartitionIds.of(("a", "b"), {"a": 3, "b": 2})
MEMBER = make_member(
    KafkaDiscoveryConfig(
        node_id="n1",
        topics=("b", "a"),
        metadata=NodeMetadata(cores=4, failure_domain="zone"),
    )
)
RAW = RawMember("n1-x", "n1", MEMBER.subscription())


def test_a_member_is_read_with_its_node_and_its_claims() -> None:
    held = replace(MEMBER, held=(("a", 1),), generation=7)
    read = read_member(replace(RAW, metadata=held.subscription()))
    assert read.member.member_id == "n1-x"
    assert (read.member.node_id, read.member.cores) == ("n1", 4)
    assert (read.member.topics, read.member.failure_domain) == (("a", "b"), "zone")
    assert (read.member.owned, read.member.generation) == ((("a", 1),), 7)
    assert read.node == replace(MEMBER.node, state=NodeState.ACTIVE)
    assert read.announced == MEMBER.user_data


def test_what_a_member_claims_is_not_in_the_hash() -> None:
    held = replace(MEMBER, held=(("a", 1),), generation=7)
    later = replace(RAW, member_id="n1-y", metadata=held.subscription())
    assert hash_of([read_member(later)]) == hash_of([read_member(RAW)])


def test_a_member_that_names_another_node_than_its_own_is_foreign() -> None:
    read = read_member(replace(RAW, instance_id="n2"))
    assert read.node.is_foreign
    assert (read.node.node_id, read.member.cores, read.node.rpc_address) == ("n2", 1, "")
    assert read.member.topics == ("a", "b")


def test_a_broker_that_does_not_tell_instance_ids_does_not_make_members_foreign() -> None:
    assert not read_member(replace(RAW, instance_id=None)).node.is_foreign


def test_a_foreign_member_is_read_as_far_as_it_goes() -> None:
    plain = encode_subscription(ConsumerSubscription(topics=("a",), user_data=b"mine"), 1)
    read = read_member(RawMember("c-1", None, plain))
    assert read.node.is_foreign
    assert (read.node.node_id, read.member.topics, read.member.cores) == ("c-1", ("a",), 1)
    cut = read_member(RawMember("c-2", "c", plain[:6]))
    assert (cut.node.node_id, cut.member.topics, cut.member.owned) == ("c", (), ())
    short = encode_subscription(ConsumerSubscription(topics=("a",)), 0)
    torn = read_member(RawMember("c-3", None, b"\x00\x03" + short[2:]))
    assert torn.member.topics == ("a",)


@given(st.binary(max_size=60), st.none() | st.text(max_size=5), st.binary(max_size=60))
def test_no_bytes_break_the_roster(
    metadata: bytes, instance_id: str | None, assignment: bytes
) -> None:
    hostile = RawMember("x", instance_id, metadata, assignment)
    wrapped = encode_subscription(ConsumerSubscription(topics=("a",), user_data=metadata))
    for raw in (hostile, replace(hostile, metadata=wrapped)):
        read = read_member(raw)
        assert read.node.is_foreign
        assert read.member.cores == 1
        nodes = nodes_of([read_member(raw), read_member(RAW)], IDS)
        assert {node.node_id for node in nodes} == {read.node.node_id, "n1"}


def test_nodes_are_in_order_with_the_global_ids_of_what_they_were_given() -> None:
    given_out = encode_assignment(
        ConsumerAssignment(assigned_partitions=by_topic([("b", 1), ("a", 0), ("b", 9)]))
    )
    other = make_member(KafkaDiscoveryConfig(node_id="n0", topics=("a",)))
    raws = [replace(RAW, assignment=given_out), RawMember("m", "n0", other.subscription())]
    first, second = nodes_of(map(read_member, raws), IDS)
    assert (first.node_id, first.metadata.owned_partitions) == ("n0", ())
    assert (second.node_id, second.metadata.owned_partitions) == ("n1", (0, 4))
