"""Consumer groups for tests: events with few words, and what holds of every group after each step.

`feed` is the only way in which these tests step a group: it proves that the input is not changed,
that a group read back from its bytes goes on the same way, and the invariants.
"""

from collections.abc import Mapping
from typing import TypedDict, Unpack

import msgspec

from lakelog.groups.consumer import ConsumerEvent, step, target_event
from lakelog.groups.events import (
    CommitOffsets,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    GroupOutcome,
    Owned,
    TargetAssignment,
)
from lakelog.groups.state import ConsumerGroup, ConsumerMember, MemberState, Shares
from lakelog.model.errors import ErrorCode
from lakelog.model.ids import TopicId

ORDERS, CLICKS = TopicId(bytes(15) + b"\x01"), TopicId(bytes(15) + b"\x02")
TOPICS: Mapping[str, tuple[TopicId, int]] = {"orders": (ORDERS, 4), "clicks": (CLICKS, 2)}
REBALANCE_MS = 60_000

ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(ConsumerGroup)


class Fields(TypedDict, total=False):
    """What a heartbeat may tell beside its member and its epoch."""

    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    names: tuple[str, ...] | None
    pattern: str | None
    assignor: str | None
    owned: Owned | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    holder: int
    members_max: int
    holder_epoch: int


def beat_of(member_id: str, epoch: int, **fields: Unpack[Fields]) -> ConsumerHeartbeat:
    """A heartbeat that tells only what is given."""
    told: Fields = {
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "names": None,
        "pattern": None,
        "assignor": None,
        "owned": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": 45_000,
        "holder": 1,
        "members_max": 1_000,
        "holder_epoch": -1,
    }
    told.update(fields)
    return ConsumerHeartbeat("group", member_id, epoch, **told)


def join_of(member_id: str, **fields: Unpack[Fields]) -> ConsumerHeartbeat:
    """A heartbeat that joins and reads "orders", unless it says otherwise."""
    told: Fields = {"rebalance_timeout_ms": REBALANCE_MS, "owned": ()}
    if "pattern" not in fields:
        told["names"] = ("orders",)
    told.update(fields)
    return beat_of(member_id, 0, **told)


def commit_of(
    member_id: str, epoch: int, *partitions: tuple[bytes, int], api_version: int = 9
) -> CommitOffsets:
    """A commit of offset 7 for each of the partitions."""
    offsets = tuple((topic, partition, 7, -1, "") for topic, partition in partitions)
    return CommitOffsets("group", member_id, None, epoch, api_version, 1, offsets)


def shared(epoch: int, shares: Mapping[str, Mapping[bytes, tuple[int, ...]]]) -> TargetAssignment:
    """A target made by hand, of the two topics."""
    places = {bytes(ORDERS): 0, bytes(CLICKS): 1}
    return TargetAssignment(
        "group",
        epoch=epoch,
        fingerprint=77,
        assignor="uniform",
        topics=(ORDERS, CLICKS),
        shares=tuple(
            (member, tuple((places[topic], partitions) for topic, partitions in share.items()))
            for member, share in shares.items()
        ),
        names=("orders", "clicks"),
    )


def feed(group: ConsumerGroup, *events: ConsumerEvent) -> tuple[ConsumerGroup, GroupOutcome]:
    """The group after the events and the last outcome, everything that always holds checked."""
    outcome: GroupOutcome | None = None
    for event in events:
        before = ENCODER.encode(group)
        after, outcome = step(group, event)
        assert ENCODER.encode(group) == before, "the input was changed"
        again, heard = step(DECODER.decode(before), event)
        assert heard == outcome
        assert ENCODER.encode(again) == ENCODER.encode(after), "read back it goes on otherwise"
        if after == group:
            assert after is group, "nothing changed, and yet it would be written"
        check_change(group, after)
        check(after)
        group = after
    assert outcome is not None
    return group, outcome


def fed(group: ConsumerGroup, *events: ConsumerEvent) -> ConsumerGroup:
    """The group after the events."""
    return feed(group, *events)[0]


def answered(
    group: ConsumerGroup, member_id: str, epoch: int, **fields: Unpack[Fields]
) -> tuple[ConsumerGroup, ConsumerHeartbeatResult]:
    """The group and the answer after a heartbeat."""
    after, outcome = feed(group, beat_of(member_id, epoch, **fields))
    assert isinstance(outcome, ConsumerHeartbeatResult)
    return after, outcome


def refused(group: ConsumerGroup, event: ConsumerHeartbeat) -> ErrorCode:
    """The code that refuses a heartbeat, which changes nothing."""
    after, outcome = feed(group, event)
    assert after is group
    assert isinstance(outcome, ConsumerHeartbeatResult)
    assert outcome.code is not ErrorCode.NONE
    assert outcome.reason
    assert outcome.assignment is None
    return outcome.code


def retargeted(group: ConsumerGroup, topics: Mapping[str, tuple[TopicId, int]]) -> ConsumerGroup:
    """The group with the target that its owner would make."""
    return fed(group, target_event(group, topics=topics, assignor_default="uniform"))


def stable(*members: str, topics: Mapping[str, tuple[TopicId, int]] = TOPICS) -> ConsumerGroup:
    """A group whose members came one after the other and have all that they shall have."""
    group = ConsumerGroup("group")
    for member_id in members:
        group = fed(group, join_of(member_id))
    group = retargeted(group, topics)
    for member_id in members:
        group = answered(group, member_id, group.members[member_id].epoch)[0]
    return group


def held(member: ConsumerMember) -> set[tuple[bytes, int]]:
    """What the member owns: what it is assigned and what it has not let go of."""
    return pairs(member.assigned) | pairs(member.revoking)


def pairs(shares: Shares) -> set[tuple[bytes, int]]:
    """The partitions."""
    return {(topic, partition) for topic, here in shares.items() for partition in here}


def target_pairs(group: ConsumerGroup, member_id: str) -> set[tuple[bytes, int]]:
    """The partitions that the member shall have."""
    share = group.target.get(member_id, {})
    return {(topic, partition) for topic, here in share.items() for partition in here}


def check(group: ConsumerGroup) -> None:
    """What holds of every group at any time."""
    owners = {
        (topic, partition): member_id
        for topic, here in group.owners.items()
        for partition, member_id in here.items()
    }
    assert all(group.owners.values()), "a topic that nobody owns anything of"
    count = sum(len(held(member)) for member in group.members.values())
    assert count == len(owners), "P1: a partition in two hands"
    for member in group.members.values():
        assert not pairs(member.assigned) & pairs(member.revoking), "P1"
        assert all(owners[pair] == member.member_id for pair in held(member)), "P1"
        check_member(group, member)
    assert group.target_epoch <= group.epoch, "P4"
    assert group.target.keys() <= group.members.keys()
    assert group.resolved.keys() <= {member.pattern for member in group.members.values()}
    if not group.members:
        assert group.target_epoch == group.epoch, "P4"
    instances = [member.instance_id for member in group.members.values() if member.instance_id]
    assert len(instances) == len(set(instances))


def check_member(group: ConsumerGroup, member: ConsumerMember) -> None:
    """What holds of every member at any time."""
    assert group.members[member.member_id] is member
    assert all(member.assigned.values())
    assert all(member.revoking.values())
    assert (member.state is MemberState.UNREVOKED) == bool(member.revoking)
    if member.is_away:
        assert member.epoch == -2
        assert member.instance_id is not None
        return
    assert 1 <= member.epoch <= group.target_epoch, "P4"
    epochs = [epoch for here in member.assigned.values() for epoch in here.values()]
    assert all(0 <= epoch <= member.epoch for epoch in epochs)
    if member.epoch == group.target_epoch and member.state is not MemberState.UNREVOKED:
        assert pairs(member.assigned) <= target_pairs(group, member.member_id)


def check_change(before: ConsumerGroup, after: ConsumerGroup) -> None:
    """What holds of every step."""
    assert after.epoch - before.epoch in (0, 1), "P4"
    assert after.target_epoch >= before.target_epoch, "P4"
    if after.epoch == before.epoch and not is_replaced(before, after):
        assert before.members.keys() <= after.members.keys(), "P4"
        for member in after.members.values():
            assert not is_rebalance(before, before.members.get(member.member_id), member), "P4"
    for member_id, member in after.members.items():
        former = before.members.get(member_id)
        had = held(former) if former is not None else inherited(before, member)
        assert pairs(member.assigned) - had <= target_pairs(after, member_id), "not its target"
        if former is not None and not former.is_away and not member.is_away:
            assert member.epoch >= former.epoch


def inherited(before: ConsumerGroup, member: ConsumerMember) -> set[tuple[bytes, int]]:
    """What a static member takes over from the one that it replaces."""
    for former in before.members.values():
        if former.is_away and former.instance_id == member.instance_id:
            return held(former)
    return set()


def is_rebalance(
    group: ConsumerGroup, before: ConsumerMember | None, after: ConsumerMember
) -> bool:
    """Whether a member reads otherwise; what a first pattern means is known once it is resolved."""
    names, pattern = ((), "") if before is None else (before.names, before.pattern)
    if after.names != names:
        return True
    return after.pattern != pattern and (pattern != "" or after.pattern in group.resolved)


def is_replaced(before: ConsumerGroup, after: ConsumerGroup) -> bool:
    """Whether one static member took the place of another, and nothing else happened."""
    came = after.members.keys() - before.members.keys()
    went = before.members.keys() - after.members.keys()
    return len(came) == len(went) == 1 and (
        after.members[min(came)].instance_id == before.members[min(went)].instance_id
    )
