"""Stores as a network shows them: slow, at times unreachable, at times silent about what they did.

Each process reaches a store over a `FaultyLink`. What a call does to the store runs as part of the
world, not of the process: a caller that is killed, stopped or cancelled cannot take a request back
that has left. Every write may end in one of the ways that matter: done; refused before anything
happened; done, but the reply is lost; lost on the way; or lost for the caller and done much later
(a zombie). Everything done to a store stands in the journal, in the order it took effect.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeVar

from lakelog.clock import Clock
from lakelog.meta.port import KeyValue, LogPage, MetadataLog, MetadataStore, Session
from lakelog.model.failures import Failure, OutcomeUnknown, Unavailable
from lakelog.model.ids import ByteRange
from lakelog.objects.port import Buffer, ObjectInfo, ObjectStore
from lakelog.testing.simulation import Process, SimEntropy, SimLoop

T = TypeVar("T")


@dataclass(slots=True)
class Faults:
    """How bad a store is; probabilities per call. `heal` makes it good."""

    latency_s: float = 0.002
    slow: float = 0.0
    slow_s: float = 0.5
    unavailable: float = 0.0
    lost_request: float = 0.0
    lost_reply: float = 0.0
    late: float = 0.0
    late_s: float = 5.0
    timeout_s: float = 1.0
    watch_loss: float = 0.0
    outage_until_s: float = 0.0

    def heal(self) -> None:
        """Nothing goes wrong from here on; what is under way still may."""
        self.slow = self.unavailable = self.watch_loss = self.outage_until_s = 0.0
        self.lost_request = self.lost_reply = self.late = 0.0


class CallOutcome(Enum):
    """How a call ends."""

    DONE = auto()
    UNAVAILABLE = auto()
    LOST_REQUEST = auto()
    LOST_REPLY = auto()
    LATE = auto()


@dataclass(frozen=True, slots=True)
class Mutation:
    """Something that was done to a store."""

    at_s: float
    process: str
    kind: str
    name: str
    position: int = 0
    data: bytes = b""


@dataclass(slots=True)
class Journal:
    """All mutations in the order they took effect, and who wants to hear of each at once."""

    mutations: list[Mutation] = field(default_factory=list)
    listeners: list[Callable[[Mutation], None]] = field(default_factory=list)
    fates: dict[str, int] = field(default_factory=dict)
    appending: dict[tuple[str, str], int] = field(default_factory=dict)
    overlaps: list[str] = field(default_factory=list)
    """Processes that had two appends to one log under way at a time (rule 4)."""

    def add(self, mutation: Mutation) -> None:
        """Note a mutation."""
        self.mutations.append(mutation)
        for listener in self.listeners:
            listener(mutation)


class FaultyLink:
    """The way of one process to one store."""

    def __init__(
        self, loop: SimLoop, process: Process, dice: SimEntropy, faults: Faults, journal: Journal
    ) -> None:
        self.loop = loop
        self.process = process
        self.dice = dice
        self.faults = faults
        self.journal = journal

    async def read(self, act: Callable[[], Awaitable[T]]) -> T:
        """Ask the store something."""
        return await self._call(act, write=False)

    async def write(self, act: Callable[[], Awaitable[T]]) -> T:
        """Have the store do something."""
        return await self._call(act, write=True)

    def note(self, kind: str, name: str, *, position: int = 0, data: bytes = b"") -> None:
        """Put a mutation into the journal and the trace."""
        self.loop.note(self.process.name, kind, name, position)
        at_s = self.loop.time()
        self.journal.add(Mutation(at_s, self.process.name, kind, name, position, data))

    async def _call(self, act: Callable[[], Awaitable[T]], *, write: bool) -> T:
        reply: asyncio.Future[T] = self.loop.create_future()
        fate = self._fate(write=write)
        self.journal.fates[fate.name] = self.journal.fates.get(fate.name, 0) + 1
        serving = self._serve(act, fate, reply, lost=OutcomeUnknown if write else Unavailable)
        self.loop.spawn(serving, process=None, name=f"call of {self.process.name}")
        return await reply

    def _fate(self, *, write: bool) -> CallOutcome:
        faults = self.faults
        if self.loop.time() < faults.outage_until_s:
            return CallOutcome.UNAVAILABLE if self.dice.chance(0.5) else CallOutcome.LOST_REQUEST
        for fate, probability in (
            (CallOutcome.UNAVAILABLE, faults.unavailable),
            (CallOutcome.LOST_REQUEST, faults.lost_request),
            (CallOutcome.LOST_REPLY, faults.lost_reply),
            (CallOutcome.LATE, faults.late if write else 0.0),
        ):
            if self.dice.chance(probability):
                return fate
        return CallOutcome.DONE

    async def _serve(
        self,
        act: Callable[[], Awaitable[T]],
        fate: CallOutcome,
        reply: asyncio.Future[T],
        *,
        lost: type[Failure],
    ) -> None:
        await self._travel()
        if fate is CallOutcome.UNAVAILABLE:
            _fail(reply, Unavailable("a fault: nothing was written"))
        elif fate is CallOutcome.DONE:
            await _act(act, reply)
        else:
            waited_s = self.dice.between(0.0, self.faults.timeout_s)
            late_s = min(self.dice.waiting_s(self.faults.late_s), 3 * self.faults.late_s)
            if fate is CallOutcome.LOST_REPLY:
                await _act(act, self.loop.create_future())
            await asyncio.sleep(waited_s)
            _fail(reply, lost(f"a fault: {fate.name.lower().replace('_', ' ')}"))
            if fate is CallOutcome.LATE:
                await asyncio.sleep(late_s)
                await _act(act, self.loop.create_future())

    async def _travel(self) -> None:
        slow = self.dice.chance(self.faults.slow)
        await asyncio.sleep(
            self.dice.waiting_s(self.faults.slow_s if slow else self.faults.latency_s)
        )


async def _act(act: Callable[[], Awaitable[T]], reply: asyncio.Future[T]) -> None:
    try:
        result = await act()
    except Failure as error:
        _fail(reply, error)
    else:
        if not reply.done():
            reply.set_result(result)


def _fail(reply: asyncio.Future[Any], error: Failure) -> None:
    if not reply.done():
        reply.set_exception(error)
        reply.exception()  # the caller may be gone


class FaultySession:
    """A session over a link."""

    def __init__(self, link: FaultyLink, inner: Session) -> None:
        self._link = link
        self._inner = inner

    @property
    def id(self) -> str:
        """A name for this session, unique for ever."""
        return self._inner.id

    @property
    def kept_alive_s(self) -> float:
        """Never: nobody but its owner renews it."""
        return -math.inf

    async def renew(self) -> None:
        """Live for another time to live; `Conflict` when the session has ended already."""
        await self._link.write(self._inner.renew)

    async def close(self) -> None:
        """End the session and delete its keys."""
        await self._link.write(self._inner.close)


class FaultyLog:
    """A log over a link."""

    def __init__(self, link: FaultyLink, inner: MetadataLog, name: str) -> None:
        self._link = link
        self._inner = inner
        self._name = name

    async def append(self, record: bytes) -> int:
        """Add a record and return its position."""

        async def act() -> int:
            position = await self._inner.append(record)
            self._link.note("append", self._name, position=position, data=record)
            return position

        journal, key = self._link.journal, (self._link.process.name, self._name)
        journal.appending[key] = journal.appending.get(key, 0) + 1
        if journal.appending[key] > 1:
            journal.overlaps.append(f"R4 {key}: two appends at a time")
        try:
            return await self._link.write(act)
        finally:
            journal.appending[key] -= 1

    async def read(self, *, after: int) -> LogPage:
        """Records from position `after + 1` on, at most a page of them."""
        return await self._link.read(lambda: self._inner.read(after=after))

    async def wait(self, *, after: int, timeout_s: float) -> None:
        """Return when the log may have grown; a lost watch returns when the time is over."""
        if self._link.dice.chance(self._link.faults.watch_loss):
            await asyncio.sleep(timeout_s)
            return
        waiting = self._inner.wait(after=after, timeout_s=timeout_s)
        await self._link.loop.spawn(waiting, process=None, name="watch")

    async def trim(self, *, before: int) -> None:
        """Forget records below position `before`, but never the newest one."""

        async def act() -> None:
            await self._inner.trim(before=before)
            self._link.note("trim", self._name, position=before)

        await self._link.write(act)


class FaultyMetadataStore:
    """A metadata store over a link."""

    def __init__(self, link: FaultyLink, inner: MetadataStore) -> None:
        self._link = link
        self._inner = inner

    async def get(self, key: str) -> KeyValue | None:
        """The key's present value, or None."""
        return await self._link.read(lambda: self._inner.get(key))

    async def range(self, prefix: str) -> list[KeyValue]:
        """All keys that begin with `prefix`, sorted by key, read at one moment."""
        return await self._link.read(lambda: self._inner.range(prefix))

    async def put(
        self,
        key: str,
        value: bytes | None,
        *,
        expect: int | None = None,
        session: Session | None = None,
    ) -> int:
        """Set the key (None deletes it) and return its new version."""

        async def act() -> int:
            version = await self._inner.put(key, value, expect=expect, session=session)
            self._link.note("key", key, position=version, data=value or b"")
            return version

        return await self._link.write(act)

    def log(self, name: str) -> FaultyLog:
        """The log of that name."""
        return FaultyLog(self._link, self._inner.log(name), name)

    async def session(self, *, ttl_s: float, keep_s: float = 0.0) -> FaultySession:
        """Begin a session that ends when it is not renewed in time, by its owner alone."""
        assert keep_s >= 0, keep_s
        made = await self._link.write(lambda: self._inner.session(ttl_s=ttl_s))
        return FaultySession(self._link, made)

    async def close(self) -> None:
        """Nothing: the store outlives its processes."""


class FaultyObjectStore:
    """An object store over a link, with a clock of its own."""

    def __init__(self, link: FaultyLink, inner: ObjectStore, *, own: Clock, theirs: Clock) -> None:
        self._link = link
        self._inner = inner
        self._own = own
        self._theirs = theirs

    @property
    def url(self) -> str:
        """Where the objects are, for humans."""
        return self._inner.url

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the parts, one after another, as one object."""
        content = b"".join(parts)  # the caller may reuse its buffers once the call has ended

        async def act() -> None:
            await self._inner.put(key, [content])
            self._link.note("put", key, position=len(content))

        await self._link.write(act)

    async def get(self, key: str) -> memoryview:
        """The whole object."""
        return await self._link.read(lambda: self._inner.get(key))

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """The bytes of each range, in the order asked for."""
        return await self._link.read(lambda: self._inner.get_ranges(key, ranges))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """The objects whose key begins with `prefix`, as of one moment."""

        async def act() -> list[ObjectInfo]:
            return [info async for info in self._inner.list(prefix)]

        for info in await self._link.read(act):
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects."""

        async def act() -> None:
            for key in keys:
                self._link.note("delete", key)
            await self._inner.delete(keys)

        await self._link.write(act)

    async def clock_skew_ms(self) -> int:
        """How far the store's clock is ahead of the process's."""

        async def act() -> int:
            return self._theirs.now_ms()

        return await self._link.read(act) - self._own.now_ms()

    async def close(self) -> None:
        """Nothing: the store outlives its processes."""
