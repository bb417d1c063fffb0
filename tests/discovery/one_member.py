"""One member in generation 5 of a group, for tests that say what happens to it next."""

from lakelog.discovery.assignor import by_topic
from lakelog.discovery.config import KafkaDiscoveryConfig
from lakelog.discovery.member import Member, make_member
from lakelog.discovery.membership import step
from lakelog.discovery.membership_events import (
    DescribeAnswered,
    Effect,
    Event,
    JoinAnswered,
    Publish,
    SendJoin,
    StartRequested,
    SyncAnswered,
)
from lakelog.discovery.node import TopicPartition
from lakelog.discovery.roster import (
    AssignmentFacts,
    RawMember,
    digest,
    encode_facts,
    hash_of,
    read_member,
)
from lakelog.wire.codec import (
    ConsumerAssignment,
    encode_assignment,
)

CONFIG = KafkaDiscoveryConfig(node_id="n1", topics=("a", "b"))
OUTSIDE = make_member(CONFIG)
A0, A1, A2, B0 = ("a", 0), ("a", 1), ("a", 2), ("b", 0)
Effects = tuple[Effect, ...]


def raw(member: Member = OUTSIDE, member_id: str = "n1-1") -> RawMember:
    return RawMember(member_id, member.node.node_id, member.subscription())


def assignment(
    *partitions: TopicPartition,
    counts: tuple[int, int] = (3, 2),
    seen: bytes = digest(OUTSIDE.user_data),
    is_awaited: bool = False,
) -> bytes:
    facts = AssignmentFacts(
        counts=dict(zip("ab", counts, strict=True)),
        roster_hash=hash_of([read_member(raw())]),
        seen=seen,
        leader="n9",
        is_awaited=is_awaited,
    )
    return encode_assignment(
        ConsumerAssignment(assigned_partitions=by_topic(partitions), user_data=encode_facts(facts))
    )


def run(member: Member, *events: Event) -> tuple[Member, Effects]:
    """All events; the effects of the last."""
    effects: Effects = ()
    for event in events:
        member, effects = step(member, event)
    return member, effects


def joined(generation: int = 5, leader: str = "n9-1") -> JoinAnswered:
    return JoinAnswered(0, "n1-1", generation, leader)


def settled(*partitions: TopicPartition) -> Member:
    """A member in generation 5 with these partitions and a list of itself alone."""
    given = SyncAnswered(0, assignment(*partitions))
    described = DescribeAnswered(0, "Stable", (raw(),))
    return run(OUTSIDE, StartRequested(), joined(), given, described)[0]


def told(effects: Effects) -> list[object]:
    return [effect.change for effect in effects if isinstance(effect, Publish)]


def joins(effects: Effects) -> list[SendJoin]:
    return [effect for effect in effects if isinstance(effect, SendJoin)]
