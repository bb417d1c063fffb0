"""What the sessions of one port share: the dispatch, the limits, the bytes held, the counters.

Bytes are held from the moment they are received until their request is answered; of half-sent
requests what is allocated for them counts, and one address has only a share (`half_sent`). Above
the total limit every session that receives stops reading; they go on when a quarter of the room is
free again. When half-sent requests alone fill the room, nothing would ever be answered: then one of
them at a time has a pass, and is read to its end.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from prometheus_client import Counter

from lakelog.broker.call import Answer, Call, Later
from lakelog.clock import Clock, Tasks
from lakelog.server.half_sent import LOW_WATER, HalfSent
from lakelog.server.options import ServerOptions
from lakelog.server.quiet import QuietLog
from lakelog.telemetry import Metrics
from lakelog.wire.apis import APIS
from lakelog.wire.framing import SCRATCH_BYTES

Dispatch: TypeAlias = Callable[[int, Call, memoryview], Coroutine[Any, Any, Answer | Later]]
"""An API key, where the request came from, and its body; the handler's outcome."""

log = logging.getLogger("lakelog.server")


class Held(Protocol):
    """A session, as far as the limit on all of them is concerned."""

    unframed_bytes: int  # allocated for a request that is not complete

    def may_go_on(self) -> None:
        """There is room again."""

    def sweep(self, now_s: float) -> None:
        """Close the connection if its time is over."""

    def drain(self) -> None:
        """Take no more requests; close when all that came are answered."""

    def abort(self) -> None:
        """Close at once, whatever is owed."""


@dataclass(slots=True)
class Traffic:
    """The state that all sessions of one port share."""

    dispatch: Dispatch
    options: ServerOptions
    clock: Clock
    metrics: Metrics
    tasks: Tasks
    loop: asyncio.AbstractEventLoop
    quiet: QuietLog
    failures: Counter  # handlers that failed in a way nobody foresaw
    stalled: Counter  # requests that did not arrive in time
    scratch: bytearray = field(default_factory=lambda: bytearray(SCRATCH_BYTES))
    sessions: set[Held] = field(default_factory=set)
    waiting: dict[Held, None] = field(default_factory=dict)  # in the order in which they came
    half_sent: dict[str, HalfSent] = field(default_factory=dict)  # by the client's address
    total_bytes: int = 0
    unframed_bytes: int = 0  # of those, of requests that are not complete
    passing: Held | None = None
    draining: bool = False
    empty: asyncio.Event = field(default_factory=asyncio.Event)  # no session is left
    connections_made: int = 0

    def __post_init__(self) -> None:
        self.empty.set()

    def entered(self, session: Held) -> int:
        """One session more; returns its number, which no other has."""
        self.sessions.add(session)
        self.empty.clear()
        self.metrics.connections.inc()
        self.connections_made += 1
        return self.connections_made

    def share_of(self, host: str) -> HalfSent:
        """What the half-sent requests of an address hold, with one connection more."""
        share = self.half_sent.get(host)
        if share is None:
            bytes_max = int(self.options.total_bytes_max * self.options.address_share_max)
            share = self.half_sent[host] = HalfSent(bytes_max)
        share.connections += 1
        return share

    def gave_up(self, session: Held, host: str) -> None:
        """One connection of an address less."""
        share = self.half_sent[host]
        share.connections -= 1
        share.add(-session.unframed_bytes)
        share.completed(session)
        if not share.connections:
            del self.half_sent[host]

    def left(self, session: Held, *, held_bytes: int) -> None:
        """One session less, and what it held."""
        self.sessions.discard(session)
        self.waiting.pop(session, None)
        self.metrics.connections.dec()
        self.unframed_bytes -= session.unframed_bytes
        if self.passing is session:
            self.passing = None
        self.release(held_bytes)
        if not self.sessions:
            self.empty.set()

    def is_scarce(self) -> bool:
        """Whether room is nearly gone: one large read of each session would be too much."""
        return self.total_bytes > self.options.total_bytes_max * LOW_WATER

    def must_wait(self, session: Held) -> bool:
        """Whether a session has to stop reading because of all the others; notes that it waits."""
        if self.total_bytes <= self.options.total_bytes_max or self.passing is session:
            return False
        if self.passing is None and session.unframed_bytes and self._is_stuck():
            self.passing = session
            return False
        self.waiting[session] = None
        return True

    def release(self, size_bytes: int) -> None:
        """Those bytes are no longer held: let sessions go on that waited for it."""
        self.total_bytes -= size_bytes
        if not self.waiting:
            return
        if not self.is_scarce():
            waiting, self.waiting = self.waiting, {}
            for session in waiting:
                session.may_go_on()
        elif self.passing is None and self._is_stuck():
            self._give_pass()

    def _give_pass(self) -> None:
        """Let one half-sent request be read to its end, whose address has room or a pass too."""
        for chosen in [session for session in self.waiting if session.unframed_bytes]:
            del self.waiting[chosen]
            chosen.may_go_on()
            if self.passing is not None:
                return

    def _is_stuck(self) -> bool:
        """Whether nothing is held but half-sent requests, so that no answer can free anything."""
        return self.total_bytes <= self.unframed_bytes

    def answered(self, api_key: int, seconds: float) -> None:
        """Count a request that was answered, or needed no answer."""
        self.metrics.request_times.observe(APIS[api_key].name, seconds)
