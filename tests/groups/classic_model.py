"""What holds for a classic group after every step, and a model of the clients that drive one.

`check_step` knows nothing of how the machine decides: it looks at the group before and after an
event. The model keeps what brokers would keep, the requests that wait for an answer.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace
from tests.groups.classic_build import Event, join_of, leave_of, sync_of

from lakelog.groups.classic import answer_join, answer_sync, step, timers
from lakelog.groups.events import (
    Adopt,
    Expire,
    GroupEventResult,
    GroupOutcome,
    Join,
    JoinAnswer,
    JoinResult,
    Leave,
    LeaveResult,
    Sync,
    SyncAnswer,
    TimerExpired,
)
from lakelog.groups.state import ClassicGroup, ClassicState, TimerKind
from lakelog.model.errors import ErrorCode

PREPARING, COMPLETING = ClassicState.PREPARING, ClassicState.COMPLETING
STABLE, EMPTY = ClassicState.STABLE, ClassicState.EMPTY
PARTITIONS = 12
SETTLING_STEPS_MAX = 12
"""Two initial delays, joins, syncs, joins of the rest, and the same again with static ones."""


class Share(msgspec.Struct, frozen=True):
    """An assignment as this model writes it: nothing but the members can read it."""

    generation: int
    attempt: int
    partitions: list[int]


def bytes_of(group: ClassicGroup) -> bytes:
    return msgspec.msgpack.encode(group)


def restored(group: ClassicGroup) -> ClassicGroup:
    return msgspec.msgpack.decode(bytes_of(group), type=ClassicGroup)


def assign(group: ClassicGroup, *, attempt: int) -> dict[str, bytes]:
    """All partitions spread over the members, differently in each attempt; some get none."""
    shares: dict[str, list[int]] = {}
    names = list(group.members)[attempt % 2 and len(group.members) > 1 :]
    for partition in range(PARTITIONS):
        shares.setdefault(names[(partition * 7 + attempt) % len(names)], []).append(partition)
    return {
        name: msgspec.msgpack.encode(Share(group.generation, attempt, partitions))
        for name, partitions in shares.items()
    }


def shares_of(group: ClassicGroup) -> list[Share]:
    return [
        msgspec.msgpack.decode(member.assignment, type=Share)
        for member in group.members.values()
        if member.assignment
    ]


def check_step(
    before: ClassicGroup, event: Event, after: ClassicGroup, outcome: GroupOutcome
) -> None:
    check_group(after)
    check_order(before, after)
    check_refusal(before, event, after, outcome)
    if after is not before:
        assert bytes_of(after) != bytes_of(before), "a group that did not change is the same object"
    other, again = step(restored(before), event)
    assert (bytes_of(other), again) == (bytes_of(after), outcome)
    assert restored(after) == after


def check_group(group: ClassicGroup) -> None:
    members = group.members.values()
    assert (group.state is EMPTY) == (not group.members)
    assert group.leader in group.members if group.members else group.leader is None
    assert all(key == member.member_id for key, member in group.members.items())
    check_counts(group)
    if group.state is not PREPARING:
        assert not any(member.is_joined or member.is_new for member in members)
        assert group.initial_left_ms == -1
    if group.initial_left_ms >= 0:
        assert all(member.is_joined for member in members)
    if group.state is not COMPLETING:
        assert (group.attempt, group.parts) == (0, 0)
    else:
        assert group.leader is not None
        assert not group.members[group.leader].is_synced
    if group.state in (PREPARING, COMPLETING):
        assert len(timers(group)) == 1, "a group that waits has a timer"
    check_protocols(group)
    check_shares(group)


def check_counts(group: ClassicGroup) -> None:
    members = group.members.values()
    assert group.joined_count == sum(member.is_joined for member in members)
    if group.state in (COMPLETING, STABLE):
        assert group.unsynced_count == sum(not member.is_synced for member in members)
    else:
        assert group.unsynced_count == 0
    support: dict[str, int] = {}
    for member in members:
        for name in {name for name, _ in member.protocols}:
            support[name] = support.get(name, 0) + 1
    assert group.support == support
    statics = {m.instance_id: m.member_id for m in members if m.instance_id is not None}
    assert group.instances == statics


def check_protocols(group: ClassicGroup) -> None:
    count = len(group.members)
    if group.members:
        assert count in group.support.values(), "members have a protocol in common"
    if group.state in (COMPLETING, STABLE):
        assert group.protocol_name is not None
        assert group.support[group.protocol_name] == count
    if group.state is EMPTY:
        assert group.protocol_name is None


def check_shares(group: ClassicGroup) -> None:
    """P1: assignments are of this generation, of one attempt, and no partition is in two."""
    shares = shares_of(group)
    assert {share.generation for share in shares} <= {group.generation}
    if group.state is STABLE:
        assert len({share.attempt for share in shares}) <= 1
        given = [partition for share in shares for partition in share.partitions]
        assert len(given) == len(set(given))


def check_order(before: ClassicGroup, after: ClassicGroup) -> None:
    """P4: one generation for each rebalance that is complete; timers are never reused."""
    reached = after.generation - before.generation
    assert reached in (0, 1)
    if reached:
        assert after.state in (COMPLETING, EMPTY)
        assert not shares_of(after)
        assert after.parts == 0
    else:
        came_from = {
            EMPTY: {EMPTY},
            PREPARING: {EMPTY, PREPARING, COMPLETING, STABLE},
            COMPLETING: {COMPLETING},
            STABLE: {COMPLETING, STABLE},
        }
        assert before.state in came_from[after.state]
    assert after.join_number >= before.join_number
    for old in timers(before):
        for new in timers(after):
            if (old.kind, old.number) == (new.kind, new.number):
                assert old == new, "a timer that runs keeps its duration"


def check_refusal(
    before: ClassicGroup, event: Event, after: ClassicGroup, outcome: GroupOutcome
) -> None:
    match outcome:
        case LeaveResult(codes=codes, member_ids=member_ids):
            assert isinstance(event, Leave)
            assert len(codes) == len(member_ids) == len(event.members)
            left = {
                name for code, name in zip(codes, member_ids, strict=True) if code is ErrorCode.NONE
            }
            assert before.members.keys() - after.members.keys() == left
            is_refused = not left
        case JoinResult(code=ErrorCode.GROUP_MAX_SIZE_REACHED):
            is_refused = False  # A member that finds no room is out.
        case JoinResult(code=code) | GroupEventResult(code=code):
            is_refused = code is not ErrorCode.NONE
        case _:
            raise AssertionError(outcome)
    if is_refused:
        assert after is before


class GroupModel:
    """A group, the requests that brokers hold for it, and everything that was said so far."""

    def __init__(self) -> None:
        self.group = ClassicGroup("group")
        self.joins: dict[str, str | None] = {}
        self.syncs: dict[str, tuple[int, str | None]] = {}
        self.said: list[Event] = []
        self.minted = 0

    def mint(self) -> str:
        self.minted += 1
        return f"member-{self.minted}"

    def feed(self, event: Event) -> GroupOutcome:
        """Take in an event, check everything, and answer whom it concerns."""
        before, saved = self.group, bytes_of(self.group)
        self.group, outcome = step(before, event)
        assert bytes_of(before) == saved, "the group that was given is not touched"
        check_step(before, event, self.group, outcome)
        self.said.append(event)
        if isinstance(event, Join) and outcome == JoinResult(ErrorCode.NONE, event.member_id):
            self.joins[event.member_id] = event.instance_id
        if (
            isinstance(event, Sync)
            and outcome == GroupEventResult(ErrorCode.NONE)
            and event.is_last
        ):
            self.syncs[event.member_id] = (event.generation, event.instance_id)
        self.answer()
        return outcome

    def answer(self) -> None:
        for member_id, instance_id in list(self.joins.items()):
            joined = answer_join(self.group, member_id, instance_id=instance_id)
            if joined is not None:
                self.check_join(member_id, joined)
                del self.joins[member_id]
        for member_id, (generation, instance_id) in list(self.syncs.items()):
            synced = answer_sync(
                self.group, member_id, generation=generation, instance_id=instance_id
            )
            if synced is not None:
                self.check_sync(member_id, generation, synced)
                del self.syncs[member_id]

    def check_join(self, member_id: str, answer: JoinAnswer) -> None:
        group = self.group
        assert answer.member_id == member_id
        if member_id not in group.members:
            assert answer.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
            return
        assert answer.code is ErrorCode.NONE
        assert (answer.generation, answer.leader) == (group.generation, group.leader)
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", group.protocol_name)
        listed = [name for name, _, _ in answer.members]
        assert bool(listed) == (member_id == group.leader)
        if listed and group.state is not PREPARING:
            assert listed == list(group.members)

    def check_sync(self, member_id: str, generation: int, answer: SyncAnswer) -> None:
        group = self.group
        if member_id not in group.members:
            assert answer.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
        elif group.state is STABLE and generation == group.generation:
            assert answer.code is ErrorCode.NONE
            assert answer.assignment == group.members[member_id].assignment
        else:
            assert answer.code is ErrorCode.REBALANCE_IN_PROGRESS
            assert answer.assignment == b""

    def fire(self) -> None:
        for timer in timers(self.group):
            self.feed(TimerExpired("group", timer.kind, timer.subject, timer.number))

    def settle(self) -> None:
        """Nobody says anything any more: timers and sessions bring the group to rest."""
        for _ in range(SETTLING_STEPS_MAX):
            if not timers(self.group):
                break
            self.fire()
            if self.group.state is PREPARING:
                statics = [m for m in self.group.members.values() if m.instance_id is not None]
                for member in statics:
                    if not member.is_joined:
                        self.feed(Expire("group", member.member_id, member.holder_epoch))
        assert not timers(self.group), "the group came to rest"
        assert not self.joins, "every join was answered"
        assert not self.syncs, "every sync was answered"
        for member in list(self.group.members.values()):
            if member.member_id in self.group.members:
                self.feed(Expire("group", member.member_id, member.holder_epoch))
        assert self.group.state is EMPTY


LISTS = (
    (("range", b"1"),),
    (("range", b"2"), ("sticky", b"2")),
    (("sticky", b"3"), ("range", b"3"), ("range", b"4")),
    (("sticky", b"5"),),
    (),
)
Numbers = tuple[int, int, int]


def pick(names: Iterable[str], number: int) -> str:
    """One of the names, or a stranger if there is none."""
    known = [*names]
    return known[number % len(known)] if known else "ghost"


def event_of(model: GroupModel, kind: str, numbers: Numbers) -> Event:
    """An event of this kind that makes sense, more or less, in the model as it is."""
    first, second, third = numbers
    member_id = pick(model.group.members, first)
    match kind:
        case "new" | "static" | "again":
            return _join(model, kind, member_id, numbers)
        case "sync" | "part":
            return _sync(model, kind, member_id, numbers)
        case "leave":
            by_instance: tuple[str, str | None] = ("", f"instance-{second % 3}")
            return leave_of((member_id, None), by_instance) if third % 2 else leave_of(by_instance)
        case "expire":
            member = model.group.members.get(member_id)
            return Expire("group", member_id, (member.holder_epoch if member else 0) + second // 4)
        case "adopt":
            return Adopt("group", member_id, second % 3)
        case "stale":
            kinds = (TimerKind.JOIN, TimerKind.SYNC, TimerKind.REVOKE)
            return TimerExpired(
                "group", kinds[first % 3], "", max(model.group.join_number - third, 0)
            )
        case "repeat" if model.said:
            return model.said[-1 - first % len(model.said)]
        case _:
            wrong = sync_of(member_id, model.group.generation + second - 2)
            return wrong if third % 2 else join_of("ghost", is_new=False)


def _join(model: GroupModel, kind: str, member_id: str, numbers: Numbers) -> Join:
    _, second, third = numbers
    event = join_of(
        model.mint() if kind != "again" else member_id,
        is_new=kind != "again",
        instance=f"instance-{second % 3}" if kind == "static" else None,
        protocols=LISTS[third % len(LISTS)],
        rebalance_ms=1_000 * (1 + second),
        delay_ms=(0, 3_000)[third % 2],
        members_max=6,
        holder=second % 3,
    )
    known = model.group.members.get(member_id)
    if kind == "again" and known is not None and third % 3:
        event = replace(event, protocols=known.protocols, instance_id=known.instance_id)
    return event


def _sync(model: GroupModel, kind: str, member_id: str, numbers: Numbers) -> Sync:
    _, second, third = numbers
    group = model.group
    leader = group.leader
    if leader is None:
        return sync_of(member_id, group.generation)
    if kind == "part":
        # Mostly the attempt goes on; else another one begins, or a part comes out of order.
        attempt = group.attempt if third % 4 else 1 + second
        part = group.parts if third % 4 else third // 2
        given = [*assign(group, attempt=attempt).items()]
        middle = len(given) // 2
        half = dict(given[:middle] if part == 0 else given[middle:])
        is_last = part > 0
        return sync_of(leader, group.generation, half, attempt=attempt, part=part, is_last=is_last)
    if third % 2:
        member_id = leader
    given_all = assign(group, attempt=100 + second) if member_id == leader else None
    return sync_of(member_id, group.generation, given_all)
