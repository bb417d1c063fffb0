"""Who is in the group, by its bytes, and what its leader plans."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakelog.discovery.assignor import by_topic, from_topics
from lakelog.discovery.config import KafkaDiscoveryConfig
from lakelog.discovery.member import make_member
from lakelog.discovery.node import NodeMetadata, NodeState, PartitionIds
from lakelog.discovery.roster import (
    RawMember,
    decode_facts,
    digest,
    hash_of,
    nodes_of,
    plan_assignments,
    read_member,
    wanted_topics,
)
from lakelog.wire.codec import (
    ConsumerAssignment,
    ConsumerSubscription,
    decode_assignment,
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


GROUP_RECORD_BYTES_MAX = 1 << 20
"""What Kafka takes for the one record that holds a whole group (message.max.bytes)."""


def node(name: str, *topics: str, cores: int = 1) -> RawMember:
    metadata = NodeMetadata(
        cores=cores,
        memory_bytes=2**36,
        failure_domain="eu-central-1a",
        tags={"role": "worker", "pool": "default"},
        custom={"build": "2026-02-16T10:00:00Z"},
    )
    member = make_member(
        KafkaDiscoveryConfig(
            node_id=name,
            topics=topics or ("t",),
            rpc_address=f"{name}.cluster.example.com:9100",
            raft_address=f"{name}.cluster.example.com:9200",
            metadata=metadata,
        )
    )
    return RawMember(f"{name}-member", name, member.subscription())


def test_every_member_gets_its_part_and_the_facts() -> None:
    raws = [node("n1", "a", "b"), node("n2", "b"), RawMember("x", None, b"\xff")]
    assert wanted_topics(raws) == ("a", "b")
    plan = plan_assignments(raws, {"a": 3, "b": 4}, leader="n1")
    read = {name: decode_assignment(data) for name, data in plan}
    parts = {name: from_topics(each.assigned_partitions) for name, each in read.items()}
    assert parts["x"] == ()
    assert sorted(parts["n1-member"] + parts["n2-member"]) == [
        *(("a", number) for number in range(3)),
        *(("b", number) for number in range(4)),
    ]
    assert read["x"].user_data is None
    facts = decode_facts(read["n2-member"].user_data)
    assert facts is not None
    assert facts.counts == {"a": 3, "b": 4}
    assert facts.roster_hash == hash_of([read_member(raw) for raw in reversed(raws)])
    assert facts.seen == digest(read_member(raws[1]).announced)
    assert (facts.leader, facts.member_count) == ("n1", 3)
    assert facts.node_ids == ("n1", "n2", "x")


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_hostile_members_do_not_keep_the_others_from_their_partitions(noise: list[bytes]) -> None:
    raws = [node("n1"), *(RawMember(f"x{i}", None, data) for i, data in enumerate(noise))]
    plan = dict(plan_assignments(raws, {"t": 5}, leader="n1"))
    assert set(plan) == {raw.member_id for raw in raws}
    given_out = [
        partition
        for data in plan.values()
        for partition in from_topics(decode_assignment(data).assigned_partitions)
    ]
    assert sorted(given_out) == [("t", number) for number in range(5)]


def record_bytes(raws: list[RawMember], counts: dict[str, int]) -> int:
    """About what the group's record takes: members' subscriptions and assignments, and ids."""
    plan = plan_assignments(raws, counts, leader="leader")
    return sum(len(raw.metadata) + 150 for raw in raws) + sum(len(data) for _, data in plan)


def test_two_hundred_nodes_fit_into_the_record_of_a_group() -> None:
    counts = {f"topic-{number}": 1000 for number in range(10)}
    short = [node(f"node-{number}", *counts) for number in range(200)]
    assert record_bytes(short, counts) < 0.6 * GROUP_RECORD_BYTES_MAX
    random_looking = [digest(str(number).encode()).hex() for number in range(200)]
    long = [node(f"{name}-{name[:4]}-{name}", *counts) for name in random_looking]
    assert record_bytes(long, counts) < 0.6 * GROUP_RECORD_BYTES_MAX


def test_five_hundred_nodes_fit_as_well() -> None:
    raws = [node(f"node-{number}", "t") for number in range(500)]
    assert record_bytes(raws, {"t": 10_000}) < GROUP_RECORD_BYTES_MAX
