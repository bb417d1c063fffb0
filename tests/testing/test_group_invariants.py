"""Every check of groups finds the violation it is for, planted here, and nothing else."""

from collections.abc import Collection
from typing import Any

import pytest
from msgspec.structs import replace

from lakelog.groups.events import (
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    Expire,
    ExpireOffsets,
    GroupEvent,
    GroupEventResult,
    Leave,
    TargetAssignment,
    TimerExpired,
)
from lakelog.groups.state import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    CommittedOffset,
    ConsumerGroup,
    ConsumerMember,
    Group,
    MemberState,
    TimerKind,
)
from lakelog.model.errors import ErrorCode
from lakelog.testing.group_history import Place
from lakelog.testing.group_invariants import check_group, check_offsets, check_step

T = b"t" * 16
TAKEN = GroupEventResult(ErrorCode.NONE)
STALE = GroupEventResult(ErrorCode.ILLEGAL_GENERATION)


def decode(data: bytes) -> Collection[Place]:
    return [(T, partition) for partition in data]


def classic_member(name: str, assignment: bytes = b"") -> ClassicMember:
    return ClassicMember(name, None, "", "", 6_000, 6_000, (), 1, 3, assignment)


def classic(**changes: Any) -> ClassicGroup:
    """A stable group of two members in generation 4."""
    group = ClassicGroup(
        "g",
        ClassicState.STABLE,
        4,
        "consumer",
        "range",
        "a",
        {"a": classic_member("a", b"\0"), "b": classic_member("b", b"\1")},
        join_number=7,
    )
    return replace(group, **changes)


def consumer_member(name: str, *partitions: int, **changes: Any) -> ConsumerMember:
    member = ConsumerMember(name, None, None, "", "", 6_000, 6_000, ("t",), "", None, 1, 3, 5, 4)
    assigned = {T: dict.fromkeys(partitions, 5)} if partitions else {}
    return replace(member, **{"assigned": assigned, **changes})


def consumer(*members: ConsumerMember, **changes: Any) -> ConsumerGroup:
    """A group at epoch 5 whose owners fit its members."""
    held = {
        partition: member.member_id
        for member in members
        for shares in (member.assigned, member.revoking)
        for partition in shares.get(T, {})
    }
    group = ConsumerGroup("g", 5, 5, members={one.member_id: one for one in members})
    return replace(group, **{"owners": {T: held} if held else {}, **changes})


TWO = consumer(consumer_member("a", 0), consumer_member("b", 1))


@pytest.mark.parametrize("group", [classic(), ClassicGroup("g"), TWO, ConsumerGroup("g", 2, 2)])
def test_groups_that_are_right_are_found_right(group: Group) -> None:
    assert check_group(group, decode) == []


@pytest.mark.parametrize(
    ("letter", "group"),
    [
        ("P1", classic(members={"a": classic_member("a", b"\1"), "b": classic_member("b", b"\1")})),
        ("P1", classic(leader="x")),
        ("P1", classic(instances={"i": "a"})),
        ("P2", classic(joined_count=1)),
        ("P4", classic(members={}, leader=None)),
        ("P1", consumer(consumer_member("a", 0), consumer_member("b", 0))),
        ("P1", replace(TWO, owners={T: {0: "a"}})),
        ("P1", replace(TWO, target={"a": {T: (0,)}, "b": {T: (0,)}})),
        ("P2", replace(TWO, target={"x": {T: (0,)}})),
        ("P4", replace(TWO, target_epoch=6)),
        ("P4", replace(TWO, target_epoch=4)),
        ("P4", ConsumerGroup("g", 3, 2)),
        ("P2", consumer(consumer_member("a", 0, state=MemberState.UNREVOKED))),
    ],
)
def test_a_group_that_is_wrong_is_found(letter: str, group: Group) -> None:
    assert any(said.startswith(letter) for said in check_group(group, decode))


def beat(name: str, epoch: int = 5, owned: tuple[int, ...] | None = None) -> ConsumerHeartbeat:
    said = None if owned is None else ((T, owned),)
    return ConsumerHeartbeat(
        "g", name, epoch, None, None, -1, None, None, None, said, "", "", 6_000, 1, 9
    )


def commit(name: str = "a", generation: int = 4, partition: int = 0) -> CommitOffsets:
    return CommitOffsets("g", name, None, generation, 9, 0, ((T, partition, 5, 0, ""),))


ONE = classic(members={"a": classic_member("a")})
PREPARING = classic(state=ClassicState.PREPARING)
REVOKING = consumer(
    consumer_member("a", 0, revoking={T: {2: 5}}, state=MemberState.UNREVOKED, revoke_number=8),
    consumer_member("b", 1),
)
RELEASED = consumer(consumer_member("a", 0), consumer_member("b", 1))
NEXT = replace(consumer(consumer_member("b", 1)), epoch=6)


@pytest.mark.parametrize(
    ("before", "event", "after", "outcome"),
    [
        (classic(), Expire("g", "b", 3), ONE, TAKEN),
        (classic(), Leave("g", (("b", None),)), ONE, TAKEN),
        (PREPARING, TimerExpired("g", TimerKind.JOIN, "", 7), ONE, TAKEN),
        (REVOKING, beat("a", owned=(0,)), RELEASED, TAKEN),
        (REVOKING, TimerExpired("g", TimerKind.REVOKE, "a", 8), NEXT, TAKEN),
        (TWO, TargetAssignment("g", 5, 1, "uniform", (), ()), replace(TWO, fingerprint=1), TAKEN),
        (classic(), commit(), classic(), TAKEN),
        (classic(), commit(generation=3), classic(), STALE),
        (None, commit(generation=-1), ClassicGroup("g"), TAKEN),
        (TWO, commit(generation=5, partition=7), TWO, TAKEN),
        (TWO, commit(generation=4), TWO, STALE),
        (classic(members={}), beat("a", 0), ConsumerGroup("g", 2, 1), TAKEN),
    ],
)
def test_steps_that_are_right_are_found_right(
    before: Group | None, event: GroupEvent, after: Group, outcome: GroupEventResult
) -> None:
    assert check_step(before, event, after, outcome) == []


@pytest.mark.parametrize(
    ("letter", "before", "event", "after", "outcome"),
    [
        ("K4", classic(), Expire("g", "b", 2), ONE, TAKEN),
        ("K4", classic(), Expire("g", "a", 3), ONE, TAKEN),
        ("K4", classic(), Leave("g", (("a", None),)), ONE, TAKEN),
        ("K4", classic(), commit(), ONE, TAKEN),
        ("K4", TWO, beat("a"), replace(consumer(consumer_member("a", 0)), epoch=6), TAKEN),
        ("K2", PREPARING, TimerExpired("g", TimerKind.JOIN, "", 6), ONE, TAKEN),
        ("K2", classic(), TimerExpired("g", TimerKind.JOIN, "", 7), ONE, TAKEN),
        ("K2", REVOKING, TimerExpired("g", TimerKind.REVOKE, "a", 7), NEXT, TAKEN),
        ("P1", REVOKING, beat("a"), RELEASED, TAKEN),
        ("P1", REVOKING, beat("a", owned=(0, 2)), RELEASED, TAKEN),
        ("P1", REVOKING, beat("b", owned=(1,)), RELEASED, TAKEN),
        ("P3", classic(), commit(generation=3), classic(), TAKEN),
        ("P3", classic(), commit("x"), classic(), TAKEN),
        ("P3", classic(), commit(), classic(), STALE),
        ("P3", classic(state=ClassicState.COMPLETING), commit(), classic(), TAKEN),
        ("P3", TWO, commit(generation=4), TWO, TAKEN),
        ("P3", TWO, commit(generation=6), TWO, TAKEN),
        ("P3", None, commit(generation=1), ClassicGroup("g"), TAKEN),
        ("P4", classic(), Leave("g", ()), classic(generation=6), TAKEN),
        ("P4", classic(), Leave("g", ()), classic(generation=3), TAKEN),
        ("P4", classic(), beat("a", 0), TWO, TAKEN),
        (
            "P4",
            TWO,
            TargetAssignment("g", 4, 1, "uniform", (), ()),
            replace(TWO, fingerprint=1),
            TAKEN,
        ),
        ("P4", TWO, beat("b", -1), consumer(consumer_member("a", 0)), TAKEN),
        ("P4", TWO, beat("a"), replace(TWO, target_epoch=4), TAKEN),
    ],
)
def test_a_step_that_is_wrong_is_found(
    letter: str, before: Group | None, event: GroupEvent, after: Group, outcome: GroupEventResult
) -> None:
    assert any(said.startswith(letter) for said in check_step(before, event, after, outcome))


OFFSETS = {(T, 0): CommittedOffset(1, 0, "", 0, 10), (T, 1): CommittedOffset(1, 0, "", 0, 20)}
EXPIRING = ExpireOffsets("g", ((T, "t", 0), (T, "t", 1)), 15)


@pytest.mark.parametrize(
    ("event", "outcome", "after"),
    [
        (commit(), TAKEN, {**OFFSETS, (T, 0): CommittedOffset(5, 0, "", 0, 30)}),
        (commit(), STALE, OFFSETS),
        (EXPIRING, TAKEN, {(T, 1): OFFSETS[T, 1]}),
        (DeleteGroup("g"), TAKEN, {}),
        (Expire("g", "a", 1), TAKEN, OFFSETS),
    ],
)
def test_offsets_may_change_by_commits_deletions_and_expiry(
    event: GroupEvent, outcome: GroupEventResult, after: dict[Place, CommittedOffset]
) -> None:
    assert check_offsets(OFFSETS, event, outcome, after) == []


@pytest.mark.parametrize(
    ("event", "outcome", "after"),
    [
        (commit(), STALE, {**OFFSETS, (T, 0): CommittedOffset(5, 0, "", 0, 30)}),
        (commit(), TAKEN, {(T, 0): OFFSETS[T, 0]}),
        (EXPIRING, TAKEN, {}),
        (Leave("g", ()), TAKEN, {}),
    ],
)
def test_offsets_that_change_by_anything_else_are_found(
    event: GroupEvent, outcome: GroupEventResult, after: dict[Place, CommittedOffset]
) -> None:
    assert check_offsets(OFFSETS, event, outcome, after)
