"""One client connection as bytes: what comes in, what goes out, and when to wait or to end.

Rules:

- Everything is bounded: requests and bytes not answered yet, answers not read yet, the time for a
  request to arrive, the time without any. See `ServerOptions`.
- A limit makes the port stop reading, so that TCP makes the client wait. Only time, a full house
  and what is not the protocol end a connection.
- Answers that are ready in one turn of the loop leave together.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from typing import Final, cast

from lakelog.server.answers import Answers
from lakelog.server.half_sent import HalfSent
from lakelog.server.traffic import Traffic
from lakelog.wire.errors import ProtocolError
from lakelog.wire.framing import FrameReader
from lakelog.wire.schema import Buffer

SIZE_BYTES: Final = 4
"""The length that stands before every frame."""

SCARCE_READ_BYTES: Final = 64 * 1024
"""The most that one read may take when the port holds nearly as much as it may."""


class Flow(asyncio.BufferedProtocol, ABC):
    """The bytes of one connection; a session makes answers of requests on top of it."""

    __slots__ = (
        "_reader",
        "_unsent_bytes",
        "_window_bytes",
        "answers",
        "client",
        "draining",
        "ended",
        "flush_soon",
        "frame_began_s",
        "frames",
        "held_bytes",
        "number",
        "outgoing",
        "reading",
        "released_bytes",
        "request_s",
        "server",
        "share",
        "traffic",
        "transport",
        "unframed_bytes",
        "wake",
        "writable",
    )

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.answers = Answers()
        self.frames: deque[tuple[memoryview | ProtocolError, float]] = deque()
        self.outgoing: list[Buffer] = []
        self.transport: asyncio.Transport | None = None
        self.wake: asyncio.Future[None] | None = None  # there while nothing is handled
        self.client: tuple[str, int] = ("", 0)
        self.server: tuple[str, int] = ("", 0)
        self.number = 0
        self.held_bytes = 0  # received and not answered
        self.released_bytes = 0  # answered since the last flush
        self.request_s = 0.0  # when the last request came, or the client last read something
        self.frame_began_s = 0.0
        self.reading = True
        self.writable = True
        self.flush_soon = False
        self.draining = False  # no more requests are taken
        self.ended = False
        self._reader = FrameReader(traffic.scratch)
        self.share: HalfSent | None = None  # what its address holds of half-sent requests
        self.unframed_bytes = 0  # allocated for a request that is not complete
        self._window_bytes = 0  # received since `frame_began_s`
        self._unsent_bytes = 0  # at the last sweep

    # --- what the transport says -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or refuse one connection too many."""
        traffic = self.traffic
        # uvloop's transports are Transports by what they do, not by their class.
        self.transport = transport = cast("asyncio.Transport", transport)
        if traffic.draining or len(traffic.sessions) >= traffic.options.connections_max:
            traffic.quiet.say("connection_refused", connections=len(traffic.sessions))
            self.ended = True
            transport.abort()
            return
        self.client = _address(transport.get_extra_info("peername"))
        self.server = _address(transport.get_extra_info("sockname"))
        self.number = traffic.entered(self)
        self.share = traffic.share_of(self.client[0])
        self.request_s = traffic.clock.monotonic_s()
        transport.set_write_buffer_limits(high=traffic.options.unsent_bytes_max)
        self.began()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back what is held."""
        del exc
        traffic = self.traffic
        if self not in traffic.sessions:
            return
        self.ended = True
        held_bytes, self.held_bytes = self.held_bytes, 0
        traffic.gave_up(self, self.client[0])
        traffic.left(self, held_bytes=held_bytes)
        self.frames.clear()
        self.outgoing.clear()
        self.lost()
        self.awaken()

    @abstractmethod
    def began(self) -> None:
        """The connection is there."""

    @abstractmethod
    def lost(self) -> None:
        """The connection is gone."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes are to be received; small pieces when room gets scarce."""
        assert self.share is not None
        is_over = self.share.is_over(self) and self.traffic.passing is not self
        growth_bytes_max = SCARCE_READ_BYTES if is_over else None
        buffer = self._reader.get_buffer(sizehint, growth_bytes_max)
        if self._reader.room_bytes != self.unframed_bytes:
            self._count(0)  # it grew
        return buffer[:SCARCE_READ_BYTES] if self.traffic.is_scarce() else buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take in the requests that these bytes complete."""
        traffic = self.traffic
        now_s = traffic.clock.monotonic_s()
        if not self.unframed_bytes:
            self.frame_began_s = now_s
            self._window_bytes = 0
        self._window_bytes += nbytes
        framed_bytes = 0
        found = self._reader.updated(nbytes)
        if found:
            for frame in found:
                self.frames.append((frame, now_s))
                if not isinstance(frame, ProtocolError):
                    framed_bytes += len(frame) + SIZE_BYTES
            self.request_s = self.frame_began_s = now_s
            self._window_bytes = 0
            if traffic.passing is self:
                traffic.passing = None
        self._count(framed_bytes)
        if found:
            assert self.share is not None
            self.share.completed(self)
            self.awaken()
        if self._must_wait():
            self.pause_reading()

    def _count(self, framed_bytes: int) -> None:
        """Count the requests that became complete, and what is allocated for the next one."""
        traffic, share = self.traffic, self.share
        assert share is not None
        more_bytes = self._reader.room_bytes - self.unframed_bytes
        self.unframed_bytes += more_bytes
        self.held_bytes += framed_bytes + more_bytes
        share.add(more_bytes)
        traffic.total_bytes += framed_bytes + more_bytes
        traffic.unframed_bytes += more_bytes

    def eof_received(self) -> bool:
        """The client will send nothing more: the transport closes."""
        return False

    def pause_writing(self) -> None:
        """The client does not read: its next requests wait."""
        self.writable = False

    def resume_writing(self) -> None:
        """The client has read: go on."""
        self.writable = True
        self.awaken()

    # --- what the port says ------------------------------------------------------------------

    def may_go_on(self) -> None:
        """There is room for more bytes."""
        if self.reading or self.ended or self.draining or self._must_wait():
            return
        assert self.transport is not None
        self.reading = True
        # The time during which we did not read is not the client's fault.
        self.frame_began_s = self.traffic.clock.monotonic_s()
        self._window_bytes = 0
        self.transport.resume_reading()

    def sweep(self, now_s: float) -> None:
        """Close the connection if its time is over."""
        if self.transport is None:
            return
        options = self.traffic.options
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes or (self.is_busy() and not unsent_bytes):
            self.request_s = now_s
        self._unsent_bytes = unsent_bytes
        if now_s - self.request_s > options.idle_timeout_s:
            self._end("connection_idle", level=logging.DEBUG)
        elif self.unframed_bytes and self.reading and not self.ended:
            window_s = now_s - self.frame_began_s
            if window_s <= options.frame_timeout_s:
                return
            # Over each such time: who sends much at once must not be slow for long afterwards.
            if self._window_bytes < window_s * options.frame_rate_min_bytes:
                self.traffic.stalled.inc()
                self._end("request_stalled", held_bytes=self.unframed_bytes)
            self.frame_began_s = now_s
            self._window_bytes = 0

    def drain(self) -> None:
        """Take no more requests; close when all that came are answered."""
        self.draining = True
        self.pause_reading()
        self.close_if_drained()

    def abort(self) -> None:
        """Close at once, whatever is owed."""
        self.ended = True
        if self.transport is not None:
            self.transport.abort()

    # --- what the session says ---------------------------------------------------------------

    def may_begin(self) -> bool:
        """Whether the next request may be handled now."""
        return (
            bool(self.frames)
            and self.writable
            and len(self.answers) < self.traffic.options.connection_requests_max
        )

    def is_busy(self) -> bool:
        """Whether a request is waiting, being handled or not answered."""
        return self.wake is None or bool(self.frames) or bool(self.answers)

    def awaken(self) -> None:
        """Let the session go on if there is something for it to do."""
        wake = self.wake
        if wake is not None and not wake.done() and (self.ended or self.may_begin()):
            wake.set_result(None)

    def flush(self) -> None:
        """Send the answers whose turn has come, all together."""
        self.flush_soon = False
        if self.ended:
            return
        assert self.transport is not None
        released_bytes, ends = self.answers.take(self.outgoing)
        released_bytes += self.released_bytes
        self.released_bytes = 0
        if self.outgoing:
            outgoing, self.outgoing = self.outgoing, []
            self.transport.writelines(outgoing)
        if released_bytes:
            self.held_bytes -= released_bytes
            self.traffic.release(released_bytes)
            self.may_go_on()
        if ends:
            self.ended = True
            self.transport.close()
        self.awaken()
        self.close_if_drained()

    def close_if_drained(self) -> None:
        """Close when no more requests are taken and none is left."""
        if self.draining and not self.ended and not self.is_busy() and not self.outgoing:
            assert self.transport is not None
            self.ended = True
            self.transport.close()
            self.awaken()

    def pause_reading(self) -> None:
        """Let the client wait."""
        if self.reading and not self.ended:
            assert self.transport is not None
            self.reading = False
            self.transport.pause_reading()

    def _must_wait(self) -> bool:
        options = self.traffic.options
        pending = len(self.frames) + len(self.answers)
        if pending >= options.connection_requests_max:
            return True
        if pending and self.held_bytes > options.connection_bytes_max:
            return True
        if self.traffic.passing is self:
            return False  # whoever has the port's pass needs none of its address
        assert self.share is not None
        return self.share.must_wait(self) or self.traffic.must_wait(self)

    def _end(self, name: str, /, level: int = logging.WARNING, **fields: object) -> None:
        self.traffic.quiet.say(name, level, client=self.client[0], **fields)
        self.abort()


def _address(name: object) -> tuple[str, int]:
    """Host and port of a socket name; a client that is gone already has none."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else ("", 0)
