"""A metadata store in memory: for tests, simulations and throw-away brokers.

Deterministic: it starts no task and reads no time but its `Clock`; a session that ran out is
noticed by the next access. Several handles may share one state, as processes share one file.
"""

import asyncio
import math
from dataclasses import dataclass, field

from lakelog.clock import Clock
from lakelog.meta.port import (
    PAGE_BYTES_MAX,
    PAGE_RECORDS_MAX,
    RECORD_BYTES_MAX,
    VALUE_BYTES_MAX,
    KeyValue,
    LogPage,
    Session,
)
from lakelog.model.failures import Conflict, Unavailable


@dataclass(slots=True)
class _Log:
    """Records [start, start + len(records)) and who waits for more."""

    start: int = 1
    records: list[bytes] = field(default_factory=list)
    waiters: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)

    @property
    def head(self) -> int:
        return self.start + len(self.records) - 1


@dataclass(frozen=True, slots=True)
class _Entry:
    value: bytes
    version: int
    session: str | None


@dataclass(slots=True)
class _State:
    """What all handles share."""

    entries: dict[str, _Entry] = field(default_factory=dict)
    logs: dict[str, _Log] = field(default_factory=dict)
    sessions: dict[str, float] = field(default_factory=dict)
    counter: int = 0

    def next(self) -> int:
        self.counter += 1
        return self.counter

    def end_session(self, session: str) -> None:
        self.sessions.pop(session, None)
        gone = [key for key, entry in self.entries.items() if entry.session == session]
        for key in gone:
            del self.entries[key]

    def expire(self, now_s: float) -> None:
        for session in [name for name, until_s in self.sessions.items() if until_s <= now_s]:
            self.end_session(session)


class MemorySession:
    """A session of a `MemoryMetadataStore`."""

    def __init__(self, store: "MemoryMetadataStore", session: str, ttl_s: float) -> None:
        self._store = store
        self._id = session
        self._ttl_s = ttl_s

    @property
    def id(self) -> str:
        """A name for this session, unique for ever."""
        return self._id

    @property
    def kept_alive_s(self) -> float:
        """Never: there is no thread that could renew it."""
        return -math.inf

    async def renew(self) -> None:
        """Live for another time to live; `Conflict` when the session has ended already."""
        state, now_s = self._store.enter()
        if self._id not in state.sessions:
            raise Conflict(f"session {self._id} has ended")
        state.sessions[self._id] = now_s + self._ttl_s

    async def close(self) -> None:
        """End the session and delete its keys."""
        state, _ = self._store.enter()
        state.end_session(self._id)


class MemoryLog:
    """A log of a `MemoryMetadataStore`."""

    def __init__(self, store: "MemoryMetadataStore", name: str) -> None:
        self._store = store
        self._name = name

    def _log(self) -> _Log:
        state, _ = self._store.enter()
        return state.logs.setdefault(self._name, _Log())

    async def append(self, record: bytes) -> int:
        """Add a record and return its position."""
        assert len(record) <= RECORD_BYTES_MAX, len(record)
        log = self._log()
        log.records.append(bytes(record))
        for after, waiter in log.waiters:
            if log.head > after and not waiter.done():
                waiter.set_result(None)
        return log.head

    async def read(self, *, after: int) -> LogPage:
        """Records from position `after + 1` on, at most a page of them."""
        assert after >= 0, after
        log = self._log()
        first = max(after + 1, log.start) - log.start
        page: list[bytes] = []
        size = 0
        for record in log.records[first : first + PAGE_RECORDS_MAX]:
            if page and size + len(record) > PAGE_BYTES_MAX:
                break
            page.append(record)
            size += len(record)
        start = log.start + first if page else after + 1
        return LogPage(start, tuple(page), log.head)

    async def wait(self, *, after: int, timeout_s: float) -> None:
        """Return when the log may have grown beyond `after`, or when the time is over."""
        log = self._log()
        if log.head > after or timeout_s <= 0:
            return
        loop = asyncio.get_running_loop()
        waiter = (after, loop.create_future())
        timer = loop.call_later(timeout_s, _release, waiter[1])
        log.waiters.append(waiter)
        try:
            await waiter[1]
        finally:
            timer.cancel()
            log.waiters.remove(waiter)

    async def trim(self, *, before: int) -> None:
        """Forget records below position `before`, but never the newest one."""
        log = self._log()
        gone = min(before, log.head) - log.start
        if gone > 0:
            del log.records[:gone]
            log.start += gone


class MemoryMetadataStore:
    """Keys, logs and sessions of one process; `another` shares them, like a second process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._state = _State()
        self._closed = False

    def another(self) -> "MemoryMetadataStore":
        """A second handle on the same data, also after this one was closed."""
        other = MemoryMetadataStore(self._clock)
        other._state = self._state
        return other

    def enter(self) -> tuple[_State, float]:
        """The state without the sessions that ran out, and the time of the clock."""
        if self._closed:
            raise Unavailable("the metadata store is closed")
        now_s = self._clock.monotonic_s()
        self._state.expire(now_s)
        return self._state, now_s

    async def get(self, key: str) -> KeyValue | None:
        """The key's present value, or None."""
        state, _ = self.enter()
        entry = state.entries.get(key)
        return KeyValue(key, entry.value, entry.version) if entry else None

    async def range(self, prefix: str) -> list[KeyValue]:
        """All keys that begin with `prefix`, sorted by key, read at one moment."""
        state, _ = self.enter()
        found = sorted(key for key in state.entries if key.startswith(prefix))
        return [
            KeyValue(key, state.entries[key].value, state.entries[key].version) for key in found
        ]

    async def put(
        self,
        key: str,
        value: bytes | None,
        *,
        expect: int | None = None,
        session: Session | None = None,
    ) -> int:
        """Set the key (None deletes it) and return its new version, 0 when it is deleted."""
        assert value is None or len(value) <= VALUE_BYTES_MAX, key
        state, _ = self.enter()
        entry = state.entries.get(key)
        version = entry.version if entry else 0
        if expect is not None and version != expect:
            raise Conflict(f"{key} has version {version}, not {expect}")
        if session is not None and session.id not in state.sessions:
            raise Conflict(f"session {session.id} has ended")
        if value is None:
            state.entries.pop(key, None)
            return 0
        version = state.next()
        state.entries[key] = _Entry(bytes(value), version, session.id if session else None)
        return version

    def log(self, name: str) -> MemoryLog:
        """The log of that name; it exists from its first record on."""
        return MemoryLog(self, name)

    async def session(self, *, ttl_s: float, keep_s: float = 0.0) -> MemorySession:
        """Begin a session that ends when it is not renewed within `ttl_s` seconds."""
        assert ttl_s > 0, ttl_s
        assert keep_s >= 0, keep_s
        state, now_s = self.enter()
        name = f"session-{state.next()}"
        state.sessions[name] = now_s + ttl_s
        return MemorySession(self, name, ttl_s)

    async def close(self) -> None:
        """Release what this handle holds; the data stays for other handles."""
        self._closed = True


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
