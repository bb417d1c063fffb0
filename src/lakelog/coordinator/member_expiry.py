"""Whoever falls silent is noticed here: sessions and timers of one domain's groups.

Rules (rule 23, K2, K4, K5, K6):

- A member is watched by its holder. While the holder does not live, the group's first broker
  watches, and the member gets a full session from the moment that broker saw the holder gone.
- What runs out after late ticks of our own is excused once, by a few seconds at most. After a
  stall, a loss of our own session or of the store, nothing runs out until the log was read to its
  end. After an outage everything begins anew, but for each member once until it is heard of again:
  one that is gone goes, however busy this machine is.
- Before a member is said to have expired, the log is read once more: if that fails, or the member
  was heard of meanwhile, nothing is said.
- A member whose join waits here is not silent. Only a new one may not wait for ever (row 87).

`Sessions` (pure) has the members that are watched, and whose session has run out. A session runs
from the member's last sign of life. What runs out after late ticks of our own is excused once, and
an outage restarts it once; both are to be had again only after another sign of life. Running out is
a suspicion, not a verdict: whoever takes the suspects looks again before it says so (`is_silent`),
because time passes in between.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from lakelog.clock import Clock
from lakelog.coordinator.group_domain import EventResult, GroupDiff, GroupDomain
from lakelog.coordinator.options import Brokers, GroupOptions
from lakelog.coordinator.timers import Deadlines, DueTimer, TickLateness, Timers
from lakelog.groups import classic, consumer
from lakelog.groups.events import Expire, GroupEventResult, TimerExpired
from lakelog.groups.state import ClassicGroup, ClassicMember, Group, Member, Timer
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Unavailable
from lakelog.telemetry import Count, event

MemberKey = tuple[str, str]
"""A group's id and a member's."""


@dataclass(frozen=True, slots=True)
class SilentMember:
    """A member that was silent for its session; it is watched on, from `until_s` back."""

    key: MemberKey
    holder_epoch: int
    until_s: float


@dataclass(slots=True)
class _Watched:
    timeout_s: float
    holder_epoch: int
    since_late_s: float
    """How late ticks were in all at the last sign of life."""
    is_excused: bool = False
    is_restarted: bool = False

    def heard(self, late_s: float) -> None:
        self.since_late_s = late_s
        self.is_excused = self.is_restarted = False


class Sessions:
    """The sessions of the members that one broker watches, on its monotonic clock."""

    def __init__(self, lateness: TickLateness) -> None:
        self._lateness = lateness
        self._watched: dict[MemberKey, _Watched] = {}
        self._deadlines: Deadlines[MemberKey] = Deadlines()

    def __len__(self) -> int:
        return len(self._watched)

    def __contains__(self, key: MemberKey) -> bool:
        return key in self._watched

    def begin(self, key: MemberKey, *, timeout_s: float, holder_epoch: int, now_s: float) -> None:
        """Watch the member from now on, or start its session anew."""
        self._watched[key] = _Watched(timeout_s, holder_epoch, self._lateness.late_s)
        self._deadlines.set(key, now_s + timeout_s)

    def renew(self, key: MemberKey, now_s: float) -> None:
        """The member said something; one that others watch is none of our business."""
        watched = self._watched.get(key)
        if watched is not None:
            watched.heard(self._lateness.late_s)
            self._deadlines.set(key, now_s + watched.timeout_s)

    def end(self, key: MemberKey) -> None:
        """Watch the member no longer."""
        if self._watched.pop(key, None) is not None:
            self._deadlines.drop(key)

    def restart(self, now_s: float) -> None:
        """Every session begins anew, in full, unless it did so since its member was heard of."""
        for key, watched in self._watched.items():
            if not watched.is_restarted:
                watched.heard(self._lateness.late_s)
                watched.is_restarted = True
                self._deadlines.set(key, now_s + watched.timeout_s)

    def suspects(self, now_s: float) -> list[SilentMember]:
        """The members whose sessions ran out; each gets another one, should nobody act on it."""
        found = []
        for key in self._deadlines.take_due(now_s):
            watched = self._watched[key]
            excused_s = self._lateness.excused_s(since_late_s=watched.since_late_s)
            if excused_s > 0 and not watched.is_excused:
                watched.is_excused = True
                self._deadlines.set(key, now_s + excused_s)
                continue
            until_s = now_s + watched.timeout_s
            self._deadlines.set(key, until_s)
            found.append(SilentMember(key, watched.holder_epoch, until_s))
        return found

    def suspect_again(self, suspects: Iterable[SilentMember], now_s: float) -> None:
        """Nobody could look whether these are gone: they run out again at once, if still silent."""
        for suspect in suspects:
            if self.is_silent(suspect):
                self._deadlines.set(suspect.key, now_s)

    def is_silent(self, suspect: SilentMember) -> bool:
        """Whether nothing was heard of the suspect since, and we still watch it."""
        watched = self._watched.get(suspect.key)
        if watched is None or watched.holder_epoch != suspect.holder_epoch:
            return False
        return self._deadlines.due_s(suspect.key) == suspect.until_s


TICK_S: Final = 0.1
"""How often we look: rebalances wait for this, and no session is shorter than six seconds."""

STALL_S: Final = 3.0
"""A tick that is so late finds another world: the log is read before anything runs out."""

OUTAGE_TICKS: Final = 10
"""So many ticks in a row that find us unwell are an outage: members were sent away meanwhile. Fewer
follow a stall, after which the log is read within a tick or two and what they said still waits."""

GROUPS_AT_ONCE: Final = 100
"""How many groups are gone through before others get their turn."""

_log = logging.getLogger("lakelog.coordinator")


class MemberExpiry:
    """The sessions and timers of one domain."""

    def __init__(
        self,
        domain: GroupDomain,
        brokers: Brokers,
        clock: Clock,
        options: GroupOptions,
        *,
        has_parked_join: Callable[[str, str], bool],
        expired: Count,
    ) -> None:
        self._domain = domain
        self._brokers = brokers
        self._clock = clock
        self._options = options
        self._has_parked_join = has_parked_join
        self._expired = expired
        self._lateness = TickLateness()
        self._sessions = Sessions(self._lateness)
        self._timers = Timers(self._lateness)
        self._live: tuple[int, ...] = tuple(brokers.live())
        self._is_well = True
        self._unwell_ticks = 0
        domain.listeners.append(self._see)
        domain.on_reload.append(self._reload)

    def renew(self, group_id: str, member_id: str) -> None:
        """The member said something to us."""
        self._sessions.renew((group_id, member_id), self._now_s())

    async def run(self) -> None:
        """Tick for ever."""
        while True:
            expected_s = self._clock.monotonic_s() + TICK_S
            await asyncio.sleep(TICK_S)
            now_s = self._clock.monotonic_s()
            late_s = self._lateness.ticked(expected_s=expected_s, now_s=now_s)
            if late_s > STALL_S:
                event(_log, "stalled", logging.WARNING, late_s=round(late_s, 3))
                self._doubt()
            self._domain.outbox.sweep(now_s)
            await self._tick()

    async def _tick(self) -> None:
        if not self._domain.is_well():
            self._unwell_ticks += 1
            self._doubt()
            return
        if not self._is_well:
            await self._recover()
            return
        await self._follow_brokers()
        self._fire(self._timers.take_due(self._now_s()))
        suspects = self._sessions.suspects(self._now_s())
        if suspects:
            await self._expire(suspects)

    def _doubt(self) -> None:
        self._is_well = False

    def _reload(self) -> None:
        """Our state is another one: whatever was heard before may be of no account."""
        self._unwell_ticks = OUTAGE_TICKS
        self._doubt()

    async def _recover(self) -> None:
        """Read the log to its end; after an outage sessions and timers begin anew, in full."""
        try:
            await self._domain.prove(arrived_s=self._clock.monotonic_s())
        except Unavailable:
            return
        if not self._domain.is_well():
            return
        if self._unwell_ticks >= OUTAGE_TICKS:
            now_s = self._now_s()
            self._sessions.restart(now_s)
            self._timers.restart(now_s)
        self._unwell_ticks = 0
        self._is_well = True

    async def _follow_brokers(self) -> None:
        """When brokers come or go, others may have to watch (K5)."""
        live = tuple(self._brokers.live())
        if live == self._live:
            return
        self._live = live
        for number, group_id in enumerate(list(self._domain.table.groups)):
            if number % GROUPS_AT_ONCE == GROUPS_AT_ONCE - 1:
                await asyncio.sleep(0)
            group = self._domain.group(group_id)
            if group is not None:
                for member in group.members.values():
                    self._watch(group_id, None, member, only_new=True)

    def _see(self, change: GroupDiff) -> None:
        before = {} if change.before is None else change.before.members
        after = {} if change.after is None else change.after.members
        for member_id in change.members:
            member = after.get(member_id)
            if member is None:
                self._sessions.end((change.group_id, member_id))
            else:
                self._watch(change.group_id, before.get(member_id), member)
        self._timers.see(change.group_id, timers_of(change.after), self._now_s())

    def _watch(
        self, group_id: str, before: Member | None, member: Member, *, only_new: bool = False
    ) -> None:
        key = (group_id, member.member_id)
        if not self._is_ours(group_id, member):
            self._sessions.end(key)
            return
        is_known = key in self._sessions
        if is_known and (only_new or not begins_anew(before, member)):
            return
        self._sessions.begin(
            key,
            timeout_s=self._timeout_ms(group_id, member) / 1000,
            holder_epoch=member.holder_epoch,
            now_s=self._now_s(),
        )

    def _timeout_ms(self, group_id: str, member: Member) -> int:
        # Whose join waits here is not silent; only a new member may not wait for ever (row 87).
        waits = isinstance(member, ClassicMember) and member.is_new and member.is_joined
        if waits and self._has_parked_join(group_id, member.member_id):
            return self._options.new_member_join_timeout_ms
        return member.session_timeout_ms

    def _is_ours(self, group_id: str, member: Member) -> bool:
        own = self._brokers.own_id
        if member.holder == own:
            return True
        return member.holder not in self._live and self._rank(group_id) == 0

    def _rank(self, group_id: str) -> int:
        return rank_of(self._brokers.ranked(group_id), self._brokers.own_id)

    def _fire(self, due_timers: Sequence[DueTimer]) -> None:
        for due in due_timers:
            group_id, timer = due.group_id, due.timer
            rank = self._rank(group_id)
            if not self._timers.hold_back(due, rank=rank, now_s=self._now_s()):
                self._domain.outbox.send(
                    TimerExpired(group_id, int(timer.kind), timer.subject, timer.number)
                )

    async def _expire(self, suspects: Sequence[SilentMember]) -> None:
        try:
            await self._domain.prove(arrived_s=self._clock.monotonic_s())
        except Unavailable:
            self._doubt()
        if not self._is_well or not self._domain.is_well():
            # What is not read to its end may hold a sign of life (K6): nothing is said yet.
            self._sessions.suspect_again(suspects, self._now_s())
            return
        for suspect in suspects:
            if self._is_gone(suspect):
                group_id, member_id = suspect.key
                heard = self._domain.outbox.send(Expire(group_id, member_id, suspect.holder_epoch))
                heard.add_done_callback(partial(self._count, suspect))

    def _is_gone(self, suspect: SilentMember) -> bool:
        group_id, member_id = suspect.key
        group = self._domain.group(group_id)
        member = None if group is None else group.members.get(member_id)
        if member is None or not self._sessions.is_silent(suspect):
            return False
        waits = isinstance(member, ClassicMember) and member.is_joined and not member.is_new
        return not (waits and self._has_parked_join(group_id, member_id))

    def _count(self, suspect: SilentMember, heard: "asyncio.Future[EventResult]") -> None:
        if heard.result() == GroupEventResult(ErrorCode.NONE):
            self._expired.inc()
            group_id, member_id = suspect.key
            event(_log, "member_expired", group=group_id, member=member_id)

    def _now_s(self) -> float:
        return self._clock.monotonic_s()


def timers_of(group: Group | None) -> tuple[Timer, ...]:
    """What brokers measure for the group now."""
    if group is None:
        return ()
    return classic.timers(group) if isinstance(group, ClassicGroup) else consumer.timers(group)


def rank_of(ranked: Sequence[int], broker: int) -> int:
    """The place of a broker in the order; one that is not in it comes after all others."""
    return ranked.index(broker) if broker in ranked else len(ranked)


def begins_anew(before: Member | None, after: Member) -> bool:
    """Whether the member's session starts over: it has another holder, or it was heard in the log.

    What others do to a member, such as assign to it, is no sign of its life.
    """
    if before is None or type(before) is not type(after):
        return True
    if before.holder_epoch != after.holder_epoch:
        return True
    if before.session_timeout_ms != after.session_timeout_ms:
        return True
    if isinstance(before, ClassicMember) and isinstance(after, ClassicMember):
        return before.is_joined is not after.is_joined or (after.is_synced and not before.is_synced)
    return False
