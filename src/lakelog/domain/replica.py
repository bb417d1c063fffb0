"""A replica of a domain: it follows the log, proves that it is current, and writes to it.

Rules it keeps: at most one append is in flight (4), and the same bytes are appended until their
stamp is seen (5); record p+1 is applied only after p, and a hole means reload (2); a reload is a
rebirth under a new incarnation, and the domain is served only after its own `Hello` was applied
(8); a log that ends below what was applied has gone back in time, and the process must stop (A5);
a record that cannot be understood stops this domain and nothing else (11).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lakelog.clock import Clock, Tasks
from lakelog.domain.checkpoint_store import CheckpointStore, CheckpointTimer, Diverged, LogGap
from lakelog.domain.envelope import DomainRecord, decode_record
from lakelog.domain.event_queue import EventQueue, OwnRecord
from lakelog.domain.events import Event, Hello
from lakelog.domain.machine import apply_record
from lakelog.domain.milestone import Milestones, Timeline
from lakelog.domain.options import DomainOptions
from lakelog.domain.start import StartCheck, found_log, win_incarnation
from lakelog.domain.state import LEVEL_MAX, Applied, DomainState, Outcome
from lakelog.meta import keys
from lakelog.meta.port import LogPage, MetadataStore
from lakelog.model.failures import (
    Corrupt,
    NotFound,
    OutcomeUnknown,
    Refused,
    Unavailable,
    WentBack,
    WriterFenced,
)
from lakelog.objects.port import ObjectStore
from lakelog.telemetry import event

_log = logging.getLogger("lakelog.domain")
_NEVER: Final = float("-inf")
_LAST_MARK_S: Final = 2.0
"""How long the last milestone of a broker that stops may take; the one before stands."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose replica this is: the cluster, the domain, and the name it writes under."""

    cluster_id: str
    domain: int
    writer: str


class Replica:
    """The applied state of one domain and the way to change it."""

    def __init__(
        self,
        identity: Identity,
        store: MetadataStore,
        objects: ObjectStore,
        clock: Clock,
        options: DomainOptions,
    ) -> None:
        self.identity = identity
        self.state = DomainState()
        self.timeline = Timeline()
        self.stopped: str | None = None
        self.listeners: list[Callable[[Applied], None]] = []
        self.on_reload: list[Callable[[], None]] = []
        self.holds_name: Callable[[], bool] = lambda: True
        """Whether this process may still write under its name; asked before it is born again."""
        self.doubt_name: Callable[[], None] | None = None
        """Called when another process wrote under the name: `holds_name` is false from then on,
        until the name was won anew. None: nobody keeps the name, and who is fenced must end."""
        self._store = store
        self._clock = clock
        self._options = options
        self._log = store.log(keys.domain_log(identity.domain))
        self._checkpoints = CheckpointStore(store, objects, domain=identity.domain, options=options)
        domain, name = identity.domain, identity.writer
        self._milestones = Milestones(objects, self._log, clock, domain=domain, writer=name)
        self._start_check: StartCheck | None = StartCheck(
            store, objects, self._milestones, clock, options, domain=domain
        )
        self._queue = EventQueue(identity.writer)
        self._tasks = Tasks()
        self._serving = False
        self._fenced = False
        self._proved_s = _NEVER
        self._proving: asyncio.Task[None] | None = None
        self._next_proof: asyncio.Task[None] | None = None
        self._checkpoint_timer = CheckpointTimer(options)

    async def start(self, *, found: bool) -> None:
        """Load the state, win an incarnation and say Hello; `found` allows to begin a new log."""
        check = self._start_check
        assert check is not None, "a replica starts once"
        await check.look(self._checkpoints)
        if await self._checkpoints.pointer() is None and (await self._log.read(after=0)).end == 0:
            await check.judge(DomainState())  # before anything is written
            cluster_id, domain = self.identity.cluster_id, self.identity.domain
            await found_log(self._log, cluster_id=cluster_id, domain=domain, allowed=found)
        self._tasks.spawn(self._write(), name="domain writer")
        await self._be_born()
        self._start_check = None
        await self._milestones.try_put(self._marked())
        marking = self._milestones.keep(self._marked, every_ms=self._options.milestone_ms)
        self._tasks.spawn(marking, name="domain milestones")
        self._tasks.spawn(self._tail(), name="domain tail")
        self._tasks.spawn(self._save_checkpoints(), name="domain checkpoints")

    async def failed(self) -> None:
        """Wait for a failure that the process must not survive, and raise it."""
        await self._tasks.failed()

    async def close(self) -> None:
        """Stop following and writing; what was not applied ends as unknown."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_MARK_S):
                await self._milestones.try_put(self._marked())
        self._serving = False
        self._queue.end("the broker is stopping")
        await self._tasks.close()

    def submit(self, event: Event) -> "asyncio.Future[Outcome]":
        """Give the event its place in the log; `Unavailable` when there is none to be had."""
        if self.stopped is not None:
            raise Unavailable(f"domain {self.identity.domain} has stopped: {self.stopped}")
        return self._queue.submit(event)

    def withdraw(self, outcome: "asyncio.Future[Outcome]") -> None:
        """Take back what `submit` returned this for, if it still waits to be written."""
        self._queue.withdraw(outcome)

    def check_fresh(self) -> None:
        """Refuse to serve from a state that nobody vouched for lately (rule 17)."""
        if self.stopped is not None or not self._serving:
            raise Unavailable(self.stopped or f"domain {self.identity.domain} is being loaded")
        if self._is_stale(self._options.fresh_s):
            raise Unavailable("the metadata store did not answer lately")

    def is_proved(self, *, arrived_s: float) -> bool:
        """Whether the state holds everything acknowledged before `arrived_s`, as far as is known.

        Never while the domain is loaded: what is loaded is older than what was proved before.
        """
        return self._serving and self._proved_s >= arrived_s

    async def prove(self, *, arrived_s: float) -> None:
        """Return when the state holds everything acknowledged before `arrived_s` (rule 16).

        One read serves all who wait: one that began before this request does not count, the next
        one is shared.
        """
        while not self.is_proved(arrived_s=arrived_s):
            if not self._serving:
                raise Unavailable(self.stopped or f"domain {self.identity.domain} is being loaded")
            if self._next_proof is None:
                self._next_proof = self._tasks.spawn(self._prove_next(), name="domain proof")
            await asyncio.shield(self._next_proof)

    async def mark(self) -> None:
        """Leave a milestone of what is applied now; raises `Unavailable` or `OutcomeUnknown`."""
        await self._milestones.put(self.state, self.timeline)

    async def catch_up(self) -> None:
        """Read the log to its end and apply what is new."""
        while True:
            if self._fenced:
                raise LogGap(f"another process wrote as {self.identity.writer}")
            began_s = self._clock.monotonic_s()
            after = self.state.position
            page = await self._log.read(after=after)
            # Compared with where we stood when the read began: own appends move on meanwhile.
            if page.end < after:
                raise WentBack(
                    f"the log of domain {self.identity.domain} ends at {page.end}, but {after} was"
                    " applied: the metadata store lost writes that it had acknowledged"
                )
            self._take(page)
            if self.state.position >= page.end:
                self._proved_s = max(self._proved_s, began_s)
                return

    async def _write(self) -> None:
        """Append what is submitted, one record after another, for ever (rule 4)."""
        while True:
            await self._append(await self._queue.next_record())

    async def _append(self, own: OwnRecord) -> None:
        """Append the same bytes until their stamp is seen (rule 5)."""
        failures = 0
        while self._queue.is_pending(own.number):
            began_s = self._clock.monotonic_s()
            try:
                position = await self._log.append(own.data)
            except (Unavailable, OutcomeUnknown):
                failures += 1
                await asyncio.sleep(self._options.retry_backoff.grown_s(failures))
                await self._look()
                continue
            if not self._learn(position, own, began_s=began_s):
                await self._see(own.number)
            return

    def _learn(self, position: int, own: OwnRecord, *, began_s: float) -> bool:
        """Take in an own record at the position the store gave it, if it is the next one.

        The store acknowledged these bytes at this position, so reading them back would show the
        same; it spares a read per commit. An append that returned proves currency like a read, of
        the moment it began: others may have written between its record and its reply.
        """
        if position != self.state.position + 1 or self.stopped is not None:
            return False
        taken = self._apply(own.record, size_bytes=len(own.data))
        if taken:
            self._proved_s = max(self._proved_s, began_s)
        return taken

    async def _see(self, number: int) -> None:
        """The record is in the log: look until it was seen. Nobody else may be looking."""
        while self._queue.is_pending(number):
            await self._look()
            if self._queue.is_pending(number):
                await asyncio.sleep(self._options.retry_s)

    async def _look(self) -> None:
        try:
            await self.catch_up()
        except LogGap:  # the tail loads the state again
            self._queue.end("the log was trimmed beyond what was applied")
        except Unavailable:
            return

    def _take(self, page: LogPage) -> None:
        if page.records and page.start > self.state.position + 1:
            raise LogGap("the log was trimmed beyond what was applied")
        for data in page.records[self.state.position + 1 - page.start :]:
            try:
                record = decode_record(data, level_max=LEVEL_MAX)
            except Corrupt as error:
                self._stop(str(error))
                raise Unavailable(str(error)) from None
            if not self._apply(record, size_bytes=len(data)):
                raise Unavailable(self.stopped or "")

    def _apply(self, record: DomainRecord, *, size_bytes: int) -> bool:
        try:
            applied = apply_record(self.state, record)
        except Corrupt as error:
            self._stop(str(error))
            return False
        self._checkpoint_timer.applied(self.state, size_bytes=size_bytes)
        # Outcomes are set before listeners hear of the record; who awaits them runs a turn later.
        fenced = self._queue.applied(applied)
        for listener in self.listeners:
            listener(applied)
        if fenced:
            self._fence()
        return not fenced

    def _fence(self) -> None:
        """F1: whatever we write under this incarnation is ignored; clients must know."""
        reason = f"another process writes as {self.identity.writer}"
        if self.doubt_name is None:
            self._stop(reason)
            self._tasks.spawn(_raise(WriterFenced(reason)), name="fenced")
            return
        # Whether that one lives is known to who keeps the names: either the name is won anew, and
        # the tail has us born again, or the process is ended from there.
        self.doubt_name()
        self._fenced = True
        self._serving = False
        self._queue.end(reason)

    def _stop(self, reason: str) -> None:
        where = f"position {self.state.position + 1} of domain {self.identity.domain}"
        self.stopped = f"{where}: {reason}"
        self._serving = False
        event(_log, "domain_stopped", logging.ERROR, reason=self.stopped)
        self._queue.end(self.stopped)

    async def _prove_next(self) -> None:
        if self._proving is not None:
            await asyncio.wait([self._proving])
        self._proving, self._next_proof = self._next_proof, None
        try:
            await self.catch_up()
        except Unavailable:
            await asyncio.sleep(self._options.retry_s)

    async def _tail(self) -> None:
        failures = 0
        before = -1
        while self.stopped is None:
            try:
                # Own appends wake the tail too; what they brought was learnt already.
                is_due = self._fenced or self._is_stale(self._options.idle_read_s)
                if is_due or self.state.position == before:
                    await self.catch_up()
                failures = 0
                before = self.state.position
                await self._log.wait(after=before, timeout_s=self._options.idle_read_s)
            except LogGap as hole:
                await self._be_born_again(str(hole))
            except Unavailable as error:
                event(_log, "log_unreadable", logging.WARNING, reason=error)
                failures += 1
                await asyncio.sleep(self._options.retry_backoff.grown_s(failures))

    async def _be_born_again(self, reason: str) -> None:
        """Rule 8: end what is pending, and go on under a new incarnation."""
        event(_log, "reload", logging.WARNING, reason=reason, position=self.state.position)
        self._serving = False
        self._queue.end(f"{reason}: the broker is loading its state again")
        await self._be_born()
        stamp = self.state.writers[self.identity.writer]
        position = self.state.position
        event(_log, "reloaded", incarnation=stamp.incarnation, position=position)

    def _is_stale(self, limit_s: float) -> bool:
        return self._clock.monotonic_s() - self._proved_s > limit_s

    def _marked(self) -> tuple[DomainState, Timeline] | None:
        return (self.state, self.timeline) if self._serving else None

    async def _be_born(self) -> None:
        """Load, catch up, and serve once our own Hello is applied (rule 8)."""
        while True:
            try:
                self._check_name()
                incarnation = await win_incarnation(self._store, self.identity.writer)
                await self._load()
                if self._start_check is not None:
                    self.timeline = await self._start_check.judge(self.state)
                self._check_name()
                self._queue.begin(incarnation)
                await self._queue.submit(Hello(LEVEL_MAX))
            except (Unavailable, OutcomeUnknown) as error:
                if self.stopped is not None:
                    raise Refused(self.stopped) from None
                event(_log, "load_failed", logging.WARNING, reason=repr(error))
                self._queue.end("the state could not be loaded")
                await asyncio.sleep(self._options.retry_max_s)
                continue
            self._serving = True
            return

    def _check_name(self) -> None:
        """F2: who stood still while it loaded must not fence whoever has its name by now.

        It waits: the name is won back, or whoever watches over it ends the process.
        """
        if not self.holds_name():
            raise Unavailable(f"this process may not write as {self.identity.writer} now")

    async def _load(self) -> None:
        try:
            loaded = await self._checkpoints.load() or DomainState()
        except (Corrupt, NotFound) as error:
            reason, check = Refused(str(error)), self._start_check
            raise (reason if check is None else await check.explained(reason)) from error
        self._fenced = False
        # What was applied further is as good, and nobody must see the past (K1).
        if loaded.position > self.state.position:
            self.state = loaded
            self._checkpoint_timer.restart()
        for listener in self.on_reload:
            listener()
        await self.catch_up()
        if self.state.cluster_id != self.identity.cluster_id:
            raise Refused(
                f"the log belongs to cluster {self.state.cluster_id or '(none)'},"
                f" not to {self.identity.cluster_id}: the wrong metadata store is configured"
            )

    async def _save_checkpoints(self) -> None:
        while True:
            frozen = await self._checkpoint_timer.due()
            try:
                await self._checkpoints.save(frozen)
                await self._milestones.try_put(self._marked())
                now_ms = self._clock.now_ms()
                if now_ms >= self.timeline.sweep_after_ms:  # a lost checkpoint may save a lot
                    await self._checkpoints.tidy(now_ms=now_ms)
            except Diverged as error:
                self._stop(str(error))
            except (Unavailable, OutcomeUnknown, NotFound, Corrupt) as error:
                event(_log, "checkpoint_failed", logging.WARNING, reason=repr(error))


async def _raise(error: Exception) -> None:
    raise error
