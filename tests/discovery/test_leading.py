"""The leader's plan: complete, readable by everyone, and small enough for Kafka's group record."""

from hypothesis import given
from hypothesis import strategies as st

from lakelog.discovery.assignment import from_topics
from lakelog.discovery.config import KafkaDiscoveryConfig
from lakelog.discovery.leading import plan_assignments, wanted_topics
from lakelog.discovery.member_state import make_member
from lakelog.discovery.node import NodeMetadata
from lakelog.discovery.roster import RawMember, hash_of, read_member
from lakelog.discovery.user_data import decode_facts, digest
from lakelog.wire.codec import decode_assignment

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
