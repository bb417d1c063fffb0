"""When a connection is left unread for a moment: never alone, and never with more to be read."""

import asyncio
from collections.abc import Callable
from typing import cast

from lakelog.server.port import BUSY_TICK_BYTES, READ_TICK_S, ReadTick
from lakelog.wire.frame_runs import FrameRun

SMALL = FrameRun(memoryview(bytes(1_000)), 1)
MUCH = FrameRun(memoryview(bytes(BUSY_TICK_BYTES)), 20)


class ManualLoop:
    """Keeps the timers that were set; a test lets them go off."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object:
        """Keep it."""
        self.timers.append((delay_s, call))
        return object()

    def pass_tick(self) -> None:
        """Let the one timer go off."""
        ((delay_s, call),) = self.timers
        assert delay_s == READ_TICK_S
        self.timers.clear()
        call()


class Paced:
    """A connection that says whether it is read."""

    def __init__(self) -> None:
        self.is_read = True

    def rest(self) -> bool:
        """Stop reading."""
        was_read, self.is_read = self.is_read, False
        return was_read

    def end_rest(self) -> None:
        """Go on."""
        self.is_read = True


def made() -> tuple[ManualLoop, ReadTick, Paced]:
    loop = ManualLoop()
    return loop, ReadTick(cast("asyncio.AbstractEventLoop", loop)), Paced()


def test_a_lone_client_that_waits_for_its_answers_never_rests() -> None:
    loop, tick, connection = made()
    for _ in range(5):
        tick.received(connection, SMALL, is_full=False)
        assert connection.is_read
        loop.pass_tick()
        assert not loop.timers, "nobody rests, so nobody has to be woken"


def test_while_much_comes_a_connection_rests_until_the_next_tick() -> None:
    loop, tick, connection = made()
    seen = []
    # The second read rests because the port was busy a moment ago. Then a tick brought little, so
    # the third is that of a lone client again.
    for run in (MUCH, SMALL, SMALL):
        tick.received(connection, run, is_full=False)
        seen.append(connection.is_read)
        loop.pass_tick()
        seen.append(connection.is_read)
    assert seen == [False, True, False, True, True, True]


def test_a_full_read_is_followed_by_the_next_without_a_rest() -> None:
    loop, tick, connection = made()
    for _ in range(5):
        tick.received(connection, MUCH, is_full=True)
        assert connection.is_read
    tick.received(connection, SMALL, is_full=False)
    rests = not connection.is_read
    loop.pass_tick()
    assert rests
    assert connection.is_read


def test_many_connections_that_rest_go_on_together() -> None:
    loop, tick, _ = made()
    connections = [Paced() for _ in range(30)]
    for connection in connections:
        tick.received(connection, SMALL, is_full=False)
    resting = [connection for connection in connections if not connection.is_read]
    assert len(resting) > 10, "together they are busy, though each sends little"
    loop.pass_tick()
    assert all(connection.is_read for connection in connections)
