"""What the connections of the Kafka port share: its limits, the bytes that they hold, its counters.

Bytes are held from the moment they are received until their request is answered; of half-sent
requests what is allocated for them counts. Above the total limit every connection that receives
stops reading; they go on when a quarter of the room is free again. When half-sent requests alone
fill the room, nothing would ever be answered: then one of them at a time has a pass, and is read to
its end.

One client address has only a share of the room for its half-sent requests (`AddressShare`): a
request that has begun needs memory until it is complete, and its client decides how long that
takes. Bytes are counted as they are allocated, not as they came. Above its share an address still
makes progress, by a pass of its own. Connections without a half-sent request are never held up by
it: what they send is answered.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from prometheus_client import Counter

from lakelog.broker.call import Answer, Call, Later
from lakelog.broker.produce_rows import ProduceRows
from lakelog.clock import Clock, Tasks
from lakelog.records import kernels
from lakelog.server.options import ServerOptions
from lakelog.telemetry import MetricsRegistry, event
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.frame_runs import FrameRun
from lakelog.wire.framing import SCRATCH_BYTES, FrameReader

WINDOW_S: Final = 10.0
EVENTS_PER_WINDOW: Final = 5


class RateLimitedLog:
    """Says the first few events of each name in a window, and how many it left out before."""

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._windows: dict[str, tuple[float, int]] = {}

    def say(self, name: str, /, level: int = logging.WARNING, **fields: object) -> bool:
        """Log the event unless there were too many of its name; tells whether it did."""
        now_s = self._clock.monotonic_s()
        began_s, count = self._windows.get(name, (now_s, 0))
        left_out = 0
        if now_s - began_s >= WINDOW_S:
            left_out = max(0, count - EVENTS_PER_WINDOW)
            began_s, count = now_s, 0
        self._windows[name] = (began_s, count + 1)
        if count >= EVENTS_PER_WINDOW:
            return False
        if left_out:
            fields["left_out"] = left_out
        event(self._log, name, level, **fields)
        return True


LOW_WATER: Final = 0.75
"""Reading goes on when the bytes held fall to this share of the limit."""


class Receiver(Protocol):
    """A connection, as far as its half-sent request is concerned."""

    unframed_bytes: int  # allocated for a request that is not complete

    def may_go_on(self) -> None:
        """There is room again."""


class BoundedConnection(Receiver, Protocol):
    """A connection, as far as the limits on all of them are concerned."""

    def sweep(self, now_s: float) -> None:
        """Close the connection if its time is over."""

    def drain(self) -> None:
        """Take no more requests; close when all that came are answered."""

    def abort(self) -> None:
        """Close at once, whatever is owed."""


class AddressShare:
    """The half-sent requests of one address."""

    __slots__ = ("_bytes_max", "_passing", "_size_bytes", "_waiting", "connections")

    def __init__(self, bytes_max: int) -> None:
        self.connections = 0
        self._bytes_max = bytes_max
        self._size_bytes = 0
        self._passing: Receiver | None = None
        self._waiting: dict[Receiver, None] = {}  # in the order in which they came

    @property
    def size_bytes(self) -> int:
        """What is allocated for all of them."""
        return self._size_bytes

    @property
    def waiting(self) -> int:
        """How many connections are not read because of the others of their address."""
        return len(self._waiting)

    def add(self, size_bytes: int) -> None:
        """So many bytes more, or less."""
        self._size_bytes += size_bytes
        assert self._size_bytes >= 0, self._size_bytes

    def is_over(self, connection: Receiver) -> bool:
        """Whether it would have to wait for more than a little."""
        over = self._size_bytes > self._bytes_max and self._passing is not None
        return over and self._passing is not connection

    def must_wait(self, connection: Receiver) -> bool:
        """Whether it has to stop reading because of the others; notes that it waits."""
        if self._size_bytes <= self._bytes_max or not connection.unframed_bytes:
            return False
        if self._passing is None or self._passing is connection:
            self._passing = connection
            return False
        self._waiting[connection] = None
        return True

    def completed(self, connection: Receiver) -> None:
        """Its request is complete, or it is gone: let others go on."""
        self._waiting.pop(connection, None)
        if self._passing is connection:
            self._passing = None
        if not self._waiting:
            return
        if self._size_bytes <= self._bytes_max * LOW_WATER:
            waiting, self._waiting = self._waiting, {}
            for other in waiting:
                other.may_go_on()
        elif self._passing is None:
            chosen = next(iter(self._waiting))
            del self._waiting[chosen]
            chosen.may_go_on()


READ_TICK_S: Final = 0.003
"""While the port is busy, a connection is read again so long after a read at the earliest."""

BUSY_TICK_BYTES: Final = 24 * 1024
REQUEST_COST_BYTES: Final = 1024
"""The port is busy when so much came in a tick, a request counting as some bytes more: then it
pays to let what connections send gather. A lone client that waits for its answers sends less."""


class PacedConnection(Protocol):
    """A connection that can be left unread for a moment."""

    def rest(self) -> bool:
        """Stop reading until `end_rest`; whether it was read until now."""

    def end_rest(self) -> None:
        """Go on reading, unless something else is in the way."""


class ReadTick:
    """Lets the requests of busy connections gather, so that one read brings many of them."""

    __slots__ = ("_is_busy", "_loop", "_received_bytes", "_resting", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_busy = False
        self._received_bytes = 0  # in this tick
        self._resting: list[PacedConnection] = []
        self._timer: asyncio.TimerHandle | None = None

    def received(self, connection: PacedConnection, run: FrameRun, *, is_full: bool) -> None:
        """Small requests came on this connection, by a read that was full or was not."""
        self._received_bytes += run.size_bytes + run.count * REQUEST_COST_BYTES
        if self._timer is None:
            self._timer = self._loop.call_later(READ_TICK_S, self._tick)
        is_busy = self._is_busy or self._received_bytes >= BUSY_TICK_BYTES
        # A full read is followed by the next: more has gathered than it could bring.
        if is_busy and not is_full and connection.rest():
            self._resting.append(connection)

    def _tick(self) -> None:
        self._is_busy = self._received_bytes >= BUSY_TICK_BYTES
        self._received_bytes = 0
        resting, self._resting = self._resting, []
        # While it is busy the next tick is due whoever is read first.
        self._timer = self._loop.call_later(READ_TICK_S, self._tick) if resting else None
        for connection in resting:
            connection.end_rest()


Dispatch: TypeAlias = Callable[[int, Call, memoryview], Coroutine[Any, Any, Answer | Later]]
"""An API key, where the request came from, and its body; the handler's outcome."""

log = logging.getLogger("lakelog.server")


@dataclass(slots=True)
class PortState:
    """The state that all connections of one port share."""

    dispatch: Dispatch
    options: ServerOptions
    clock: Clock
    metrics: MetricsRegistry
    tasks: Tasks
    loop: asyncio.AbstractEventLoop
    quiet: RateLimitedLog
    failures: Counter  # handlers that failed in a way nobody foresaw
    stalled: Counter  # requests that did not arrive in time
    scratch: bytearray = field(default_factory=lambda: bytearray(SCRATCH_BYTES))
    connections: set[BoundedConnection] = field(default_factory=set)
    waiting: dict[BoundedConnection, None] = field(
        default_factory=dict
    )  # in the order in which they came
    half_sent: dict[str, AddressShare] = field(default_factory=dict)  # by the client's address
    total_bytes: int = 0
    unframed_bytes: int = 0  # of those, of requests that are not complete
    passing: BoundedConnection | None = None
    draining: bool = False
    empty: asyncio.Event = field(default_factory=asyncio.Event)  # no connection is left
    connections_made: int = 0
    produce_rows: ProduceRows | None = None  # takes plain Produce requests, many at a time

    read_tick: ReadTick = field(init=False)

    def __post_init__(self) -> None:
        self.empty.set()
        self.read_tick = ReadTick(self.loop)

    def frame_reader(self) -> FrameReader:
        """What cuts a connection's bytes: Produce requests come in runs if they become rows."""
        if self.produce_rows is None or kernels.native is None:
            return FrameReader(self.scratch)
        find_run = kernels.native.find_run
        return FrameReader(self.scratch, run_key=ApiKey.PRODUCE, find_run=find_run)

    def entered(self, connection: BoundedConnection) -> int:
        """One connection more; returns its number, which no other has."""
        self.connections.add(connection)
        self.empty.clear()
        self.metrics.connections.inc()
        self.connections_made += 1
        return self.connections_made

    def share_of(self, host: str) -> AddressShare:
        """What the half-sent requests of an address hold, with one connection more."""
        share = self.half_sent.get(host)
        if share is None:
            bytes_max = int(self.options.total_bytes_max * self.options.address_share_max)
            share = self.half_sent[host] = AddressShare(bytes_max)
        share.connections += 1
        return share

    def gave_up(self, connection: BoundedConnection, host: str) -> None:
        """One connection of an address less."""
        share = self.half_sent[host]
        share.connections -= 1
        share.add(-connection.unframed_bytes)
        share.completed(connection)
        if not share.connections:
            del self.half_sent[host]

    def left(self, connection: BoundedConnection, *, held_bytes: int) -> None:
        """One connection less, and what it held."""
        self.connections.discard(connection)
        self.waiting.pop(connection, None)
        self.metrics.connections.dec()
        self.unframed_bytes -= connection.unframed_bytes
        if self.passing is connection:
            self.passing = None
        self.release(held_bytes)
        if not self.connections:
            self.empty.set()

    def is_scarce(self) -> bool:
        """Whether room is nearly gone: one large read of each connection would be too much."""
        return self.total_bytes > self.options.total_bytes_max * LOW_WATER

    def must_wait(self, connection: BoundedConnection) -> bool:
        """Whether it has to stop reading because of all the others; notes that it waits."""
        if self.total_bytes <= self.options.total_bytes_max or self.passing is connection:
            return False
        if self.passing is None and connection.unframed_bytes and self._is_stuck():
            self.passing = connection
            return False
        self.waiting[connection] = None
        return True

    def release(self, size_bytes: int) -> None:
        """Those bytes are no longer held: let connections go on that waited for it."""
        self.total_bytes -= size_bytes
        if not self.waiting:
            return
        if not self.is_scarce():
            waiting, self.waiting = self.waiting, {}
            for connection in waiting:
                connection.may_go_on()
        elif self.passing is None and self._is_stuck():
            self._give_pass()

    def _give_pass(self) -> None:
        """Let one half-sent request be read to its end, whose address has room or a pass too."""
        for chosen in [connection for connection in self.waiting if connection.unframed_bytes]:
            del self.waiting[chosen]
            chosen.may_go_on()
            if self.passing is not None:
                return

    def _is_stuck(self) -> bool:
        """Whether nothing is held but half-sent requests, so that no answer can free anything."""
        return self.total_bytes <= self.unframed_bytes

    def answered(self, api_key: int, seconds: float, requests: int = 1) -> None:
        """Count requests that were answered, or needed no answer."""
        self.metrics.request_times.observe(APIS[api_key].name, seconds, requests)
