"""Objects that others put, made visible: checked first, then one Write a domain.

Order of a write: the domains are proved current, their level is raised if need be, every object is
looked at, and only then the first event is appended. So what can be known beforehand is refused
before anything is visible; what `apply` refuses later is refused for that domain alone, and those
before it keep what they took in (X2: the promise is one domain, not all of them).

A domain's level is raised when somebody needs what it brings, and every broker knows it. Rule 12: a
broker that does not know a level stops the domain at the record that raises it. So the brokers that
have a session are asked for first, then the domain is proved current: each of them said in its
Hello what it supports. One that has a session but no Hello yet is waited for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from lakelog.clock import Clock
from lakelog.domain.commit_event import WRITES_LEVEL, Commit, Write, check_write
from lakelog.domain.event_queue import EVENT_BYTES_MAX
from lakelog.domain.events import Upgrade, encode_event
from lakelog.domain.replica import Replica
from lakelog.domain.state import WriteVerdict, Written
from lakelog.log.options import LogOptions
from lakelog.log.placed import (
    BatchRule,
    Span,
    check_batch,
    check_commit,
    check_index,
    key_of,
    spans,
)
from lakelog.model.failures import Corrupt, NotFound, OutcomeUnknown, Refused, Unavailable
from lakelog.objects.port import ObjectStore
from lakelog.streams.table import NONE
from lakelog.wal.layout import wal_id_time_ms

Registered: TypeAlias = Callable[[], Awaitable[Sequence[str]]]
"""The names under which the brokers that have a session write, read now."""

READS_AT_ONCE: Final = 16
"""Reads of objects that run together: what they bring is at most this many spans in memory."""

BATCHES_PER_SLICE: Final = 2_000
"""Batches that are looked at before the loop is let go (R2)."""

AHEAD_MS_MAX: Final = 24 * 3_600_000
"""How far the time of an id may be ahead of ours. Clocks may differ without harm (C2), but what
lies in the future is kept, and remembered, for longer than anybody meant."""

MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class IdempotentWrite:
    """What an application wants to be visible: by domain, its objects in their order."""

    application: str
    version: int
    commits: Mapping[int, Sequence[Commit]]
    rules: Mapping[int, BatchRule]
    """What the batches of each stream must be; a stream that is missing here is unknown."""


@dataclass(frozen=True, slots=True)
class WrittenDomain:
    """One domain's part: taken in now, with its offsets (stream, start, end), or there before."""

    domain: int
    is_new: bool
    offsets: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """What the key and the id of an object that somebody else puts must be.

    The time of an id is at least `id_time_ms_min` (rule 18), and an object that is not committed
    `object_ttl_ms` after it never will be.
    """

    zone: str
    id_time_ms_min: int
    object_ttl_ms: int


@dataclass(frozen=True, slots=True)
class _Read:
    domain: int
    commit: Commit
    key: str
    span: Span


class Writes:
    """The way of such writes into the domains."""

    def __init__(
        self, replicas: Sequence[Replica], objects: ObjectStore, clock: Clock, options: LogOptions
    ) -> None:
        self._replicas = replicas
        self._objects = objects
        self._clock = clock
        self._options = options
        self.registered: Registered = self._alone
        self.admit: Callable[[], None] = lambda: None
        """Raises `Unavailable` while nothing more may be taken in."""

    def place(self, zone: str) -> ObjectPlace:
        """What objects must be called now."""
        ttl_ms = self._options.orphan_ttl_ms
        horizon_ms = max(replica.state.horizon_ms for replica in self._replicas)
        return ObjectPlace(zone, horizon_ms + ttl_ms if horizon_ms else 0, ttl_ms)

    async def write(
        self, request: IdempotentWrite, *, deadline_s: float
    ) -> tuple[WrittenDomain, ...]:
        """Check and commit; raises `Refused`, `Unavailable`, or `OutcomeUnknown` past the deadline.

        After `OutcomeUnknown`, and after a refusal of a later domain, some domains may have it.
        """
        events = _events(request, len(self._replicas))
        left_s = max(0.0, deadline_s - self._clock.monotonic_s())
        try:
            async with asyncio.timeout(left_s):
                missing = await self._missing(events)
                if missing:
                    self.admit()
                await self._check_all(missing, request.rules)
        except TimeoutError:
            raise Unavailable("the objects could not be looked at in time") from None
        except (Corrupt, NotFound) as reason:
            raise Refused(f"the write is not taken in: {reason}") from reason
        done: list[WrittenDomain] = []
        for domain, event in events.items():
            if domain not in missing:
                done.append(WrittenDomain(domain, is_new=False))
                continue
            try:
                done.append(await self._append(domain, event, deadline_s))
            except Unavailable as reason:
                if any(before.is_new for before in done):
                    raise OutcomeUnknown(f"some domains have it: {reason}") from reason
                raise
        return tuple(done)

    async def _missing(self, events: Mapping[int, Write]) -> dict[int, Write]:
        """The domains that do not have the version yet, proved, and able to take it."""
        arrived_s = self._clock.monotonic_s()
        missing = {}
        for domain, event in events.items():
            replica = self._replicas[domain]
            await replica.prove(arrived_s=arrived_s)
            last = replica.state.writes.get(event.application)
            if last is not None and event.version <= last.version:
                continue
            await raise_level(replica, WRITES_LEVEL, self.registered, self._clock)
            missing[domain] = event
        return missing

    async def _check_all(self, events: Mapping[int, Write], rules: Mapping[int, BatchRule]) -> None:
        """Look at every object before the first event is appended."""
        reads: list[_Read] = []
        for domain, event in events.items():
            self._check_streams(domain, event, rules)
            for commit in event.commits:
                self._check_time(domain, commit)
                check_commit(commit)
                key = key_of(domain, commit)
                reads += (_Read(domain, commit, key, span) for span in spans(commit))
        for start in range(0, len(reads), READS_AT_ONCE):
            some = reads[start : start + READS_AT_ONCE]
            checks = (self._check_read(read, rules) for read in some)
            # All of them end before one is heard: none goes on behind a refusal.
            for outcome in await asyncio.gather(*checks, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _check_read(self, read: "_Read", rules: Mapping[int, BatchRule]) -> None:
        commit, span = read.commit, read.span
        # One range a call: a store may read near ones together, with all that lies between.
        (data,) = await self._objects.get_ranges(read.key, [span.range])
        try:
            if span.range.start == 0:
                check_index(read.domain, commit, data)
            for at in range(span.first, span.end):
                rest = data[int(commit.byte_start[at]) - span.range.start :]
                check_batch(commit, at, rest, rules)
                if at % BATCHES_PER_SLICE == BATCHES_PER_SLICE - 1:
                    await asyncio.sleep(0)
        except Corrupt as reason:
            raise Corrupt(f"{read.key}: {reason}") from reason

    def _check_streams(self, domain: int, event: Write, rules: Mapping[int, BatchRule]) -> None:
        streams = np.unique(np.concatenate([commit.stream for commit in event.commits]))
        rows = self._replicas[domain].state.streams.rows(streams)
        unknown = streams[rows == NONE].tolist() or [
            stream for stream in streams.tolist() if stream not in rules
        ]
        if unknown:
            raise Refused(_unknown(domain, unknown))

    def _check_time(self, domain: int, commit: Commit) -> None:
        time_ms = wal_id_time_ms(commit.wal_id)
        horizon_ms = self._replicas[domain].state.horizon_ms
        if time_ms < horizon_ms:
            raise Refused(self._too_old())
        latest_ms = max(self._clock.now_ms(), horizon_ms + self._options.orphan_ttl_ms)
        if time_ms > latest_ms + AHEAD_MS_MAX:
            raise Refused(
                f"the id of an object is {time_ms - latest_ms} ms ahead of the broker's time:"
                " set the clock of the machine that wrote it"
            )

    async def _append(self, domain: int, event: Write, deadline_s: float) -> WrittenDomain:
        replica = self._replicas[domain]
        outcome = replica.submit(event)
        left_s = deadline_s - self._clock.monotonic_s()
        await asyncio.wait([outcome], timeout=max(0.0, left_s))
        if not outcome.done():
            replica.withdraw(outcome)
            raise OutcomeUnknown(f"the write was not applied in domain {domain} in time")
        written = outcome.result()
        assert isinstance(written, Written), written
        self._check_verdict(domain, written)
        is_new = written.verdict is WriteVerdict.TAKEN
        return WrittenDomain(domain, is_new, _offsets(event, written) if is_new else ())

    def _check_verdict(self, domain: int, written: Written) -> None:
        match written.verdict:
            case WriteVerdict.TAKEN | WriteVerdict.ALREADY:
                return
            case WriteVerdict.UNKNOWN_STREAM:
                raise Refused(_unknown(domain, written.unknown))
            case WriteVerdict.VOID:
                raise Refused(self._too_old())
            case WriteVerdict.APPLICATIONS_FULL:
                raise Refused(
                    f"domain {domain} remembers as many applications as it can; those that wrote"
                    f" nothing for {self._options.write_expiry_ms // MINUTE_MS} minutes make room"
                )
            case WriteVerdict.TOO_EARLY:
                raise Unavailable(f"domain {domain} does not take writes yet")

    def _too_old(self) -> str:
        minutes = self._options.orphan_ttl_ms // MINUTE_MS
        return (
            f"an object of the batch is older than {minutes} minutes (the broker's"
            " log.orphan_ttl_ms): the batch took longer than that from its first object to its"
            " commit, and such objects may be deleted already. Write smaller batches, or raise it"
        )

    async def _alone(self) -> Sequence[str]:
        return [self._replicas[0].identity.writer]


def _events(request: IdempotentWrite, domains: int) -> dict[int, Write]:
    """One event for each domain, by domain; raises `Refused` for what can be no event."""
    events = {}
    for domain in sorted(request.commits):
        event = Write(request.application, request.version, tuple(request.commits[domain]))
        if domain >= domains:
            raise Refused(f"there is no domain {domain}: the cluster has {domains}")
        try:
            check_write(event)
        except ValueError as reason:
            raise Refused(f"not a write: {reason}") from reason
        size = len(encode_event(event)[1])
        if size > EVENT_BYTES_MAX:
            batches = sum(len(commit.stream) for commit in event.commits)
            raise Refused(
                f"{batches} batches for domain {domain} take {size} bytes in its log, and"
                f" {EVENT_BYTES_MAX} are allowed: write larger batches, or fewer rows at once"
            )
        events[domain] = event
    return events


def _offsets(event: Write, written: Written) -> tuple[tuple[int, int, int], ...]:
    """(stream, start, end) for each stream of each object."""
    found: list[tuple[int, int, int]] = []
    for commit, committed in zip(event.commits, written.commits, strict=True):
        columns = (commit.stream, committed.offsets, committed.offsets + commit.offset_count)
        for stream, start, end in zip(*(column.tolist() for column in columns), strict=True):
            if found and found[-1][0] == stream and found[-1][2] == start:
                found[-1] = stream, found[-1][1], end
            else:
                found.append((stream, start, end))
    return tuple(found)


def _unknown(domain: int, streams: Sequence[int]) -> str:
    shown = ", ".join(map(str, streams[:5]))
    return (
        f"domain {domain} has no stream {shown}{' and others' if len(streams) > 5 else ''}: the"
        " topic was deleted, or made again, after the batch began"
    )


async def raise_level(replica: Replica, level: int, registered: Registered, clock: Clock) -> None:
    """Return when the domain is at that level; `Unavailable` names who does not support it."""
    if replica.state.level >= level:
        return
    names = await registered()
    await replica.prove(arrived_s=clock.monotonic_s())
    supported = replica.state.supported
    lacking = [name for name in names if supported.get(name, 0) < level]
    if lacking:
        raise Unavailable(
            f"{', '.join(lacking)} does not support it yet: this needs level {level} of the"
            " domain log, and every broker must run a version that knows it"
        )
    await replica.submit(Upgrade(level))
