"""Classic groups in a few words: events with defaults, and groups brought to a state by events."""

from lakelog.groups.classic import step, timers
from lakelog.groups.events import (
    Adopt,
    CommitOffsets,
    Expire,
    GroupEventResult,
    GroupOutcome,
    Join,
    JoinResult,
    Leave,
    Sync,
    TimerExpired,
)
from lakelog.groups.state import ClassicGroup, ClassicState, TimerKind
from lakelog.model.errors import ErrorCode

RANGE = (("range", b"subscription"),)
MANY = 1_000
Event = Join | Sync | Leave | Expire | Adopt | TimerExpired


def join_of(
    member_id: str,
    *,
    is_new: bool = True,
    instance: str | None = None,
    protocols: tuple[tuple[str, bytes], ...] = RANGE,
    protocol_type: str = "consumer",
    rebalance_ms: int = 10_000,
    delay_ms: int = 0,
    members_max: int = MANY,
    holder: int = 1,
) -> Join:
    return Join(
        group_id="group",
        member_id=member_id,
        is_new=is_new,
        instance_id=instance,
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=rebalance_ms,
        protocol_type=protocol_type,
        protocols=protocols,
        holder=holder,
        members_max=members_max,
        initial_delay_ms=delay_ms,
    )


def again(member_id: str, **changes: object) -> Join:
    return join_of(member_id, is_new=False, **changes)  # type: ignore[arg-type]  # same names


def sync_of(
    member_id: str,
    generation: int,
    assignments: dict[str, bytes] | None = None,
    *,
    instance: str | None = None,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
    is_last: bool = True,
    attempt: int = 0,
    part: int = 0,
) -> Sync:
    return Sync(
        "group",
        member_id,
        instance,
        generation,
        protocol_type,
        protocol_name,
        tuple((assignments or {}).items()),
        is_last,
        attempt,
        part,
    )


def leave_of(*members: tuple[str, str | None]) -> Leave:
    return Leave("group", members)


def commit_of(member_id: str, generation: int, instance: str | None = None) -> CommitOffsets:
    return CommitOffsets("group", member_id, instance, generation, 9, 0, ())


def code_of(outcome: GroupOutcome) -> ErrorCode:
    assert isinstance(outcome, GroupEventResult | JoinResult)
    return outcome.code


def feed(group: ClassicGroup, *events: Event) -> ClassicGroup:
    """The group after events that are all taken in."""
    for event in events:
        group, outcome = step(group, event)
        if not isinstance(event, Leave):
            assert code_of(outcome) is ErrorCode.NONE, (event, outcome)
    return group


def refuse(group: ClassicGroup, event: Event) -> ErrorCode:
    """The code of an event that changes nothing."""
    after, outcome = step(group, event)
    assert after is group
    return code_of(outcome)


def fire(group: ClassicGroup) -> ClassicGroup:
    """The group after its timer ran out."""
    (timer,) = timers(group)
    return feed(group, TimerExpired("group", timer.kind, timer.subject, timer.number))


def joined(*joins: Join) -> ClassicGroup:
    """A group whose members all joined and got no assignment yet."""
    group = feed(ClassicGroup("group"), *joins)
    while group.state is ClassicState.PREPARING:
        waiting = [member for member in group.members.values() if not member.is_joined]
        if not waiting:
            group = fire(group)
        for member in waiting:
            group = feed(group, again(member.member_id, protocols=member.protocols))
    assert group.state is ClassicState.COMPLETING
    return group


def stable(*joins: Join) -> ClassicGroup:
    """A group in which everybody has an assignment: its own id."""
    group = joined(*joins)
    shares = {member_id: member_id.encode() for member_id in group.members}
    for member_id in group.members:
        given = shares if member_id == group.leader else {}
        group = feed(group, sync_of(member_id, group.generation, given))
    assert group.state is ClassicState.STABLE
    assert timers(group) == ()
    return group


def join_timer(group: ClassicGroup) -> tuple[int, int]:
    """The number and duration of the timer that waits for joins."""
    (timer,) = timers(group)
    assert timer.kind is TimerKind.JOIN
    return timer.number, timer.duration_ms
