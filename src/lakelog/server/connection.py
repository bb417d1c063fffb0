"""One connection of a client: its bytes in and out, and when to make it wait or to end it.

Rules:

- Everything is bounded: requests and bytes not answered yet, answers not read yet, the time for a
  request to arrive, the time without any. See `ServerOptions`.
- A limit makes the port stop reading, so that TCP makes the client wait. Only time, a full house
  and what is not the protocol end a connection.
- Answers that are ready in one turn of the loop leave together.

What becomes of a request is the business of `Requests`.
"""

import asyncio
import logging
from typing import Final, cast

from lakelog.server.answers import Answers
from lakelog.server.port import AddressShare, PortState
from lakelog.server.requests import Requests
from lakelog.wire.frame_runs import SIZE_BYTES, FrameRun
from lakelog.wire.schema import ProtocolError

SCARCE_READ_BYTES: Final = 64 * 1024
"""The most that one read may take when the port holds nearly as much as it may."""


class ClientConnection(asyncio.BufferedProtocol):
    """The bytes of one connection; `requests` makes answers of what they ask."""

    __slots__ = (
        "_flushes_soon",
        "_frame_began_s",
        "_held_bytes",
        "_offered_bytes",
        "_port",
        "_reader",
        "_reading",
        "_request_s",
        "_requests",
        "_resting",
        "_share",
        "_transport",
        "_unsent_bytes",
        "_window_bytes",
        "answers",
        "client",
        "draining",
        "ended",
        "number",
        "server",
        "unframed_bytes",
        "writable",
    )

    def __init__(self, port: PortState) -> None:
        self.client: tuple[str, int] = ("", 0)
        self.server: tuple[str, int] = ("", 0)
        self.number = 0
        self.writable = True  # the client reads what it asked for
        self.draining = False  # no more requests are taken
        self.ended = False
        self.unframed_bytes = 0  # allocated for a request that is not complete
        self._port = port
        self.answers = Answers()
        self._requests = Requests(self, port)
        self._reader = port.frame_reader()
        self._transport: asyncio.Transport | None = None
        self._share: AddressShare | None = None  # what its address holds of half-sent requests
        self._held_bytes = 0  # received and not answered
        self._offered_bytes = 0  # room for the next read
        self._request_s = 0.0  # when the last request came, or the client last read something
        self._frame_began_s = 0.0
        self._window_bytes = 0  # received since then
        self._unsent_bytes = 0  # at the last sweep
        self._reading = True
        self._resting = False  # not read for a moment, so that more comes at once
        self._flushes_soon = False

    # --- what the transport says -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or refuse one connection too many."""
        port = self._port
        # uvloop's transports are Transports by what they do, not by their class.
        self._transport = transport = cast("asyncio.Transport", transport)
        if port.draining or len(port.connections) >= port.options.connections_max:
            port.quiet.say("connection_refused", connections=len(port.connections))
            self.ended = True
            transport.abort()
            return
        self.client = _address(transport.get_extra_info("peername"))
        self.server = _address(transport.get_extra_info("sockname"))
        self.number = port.entered(self)
        self._share = port.share_of(self.client[0])
        self._request_s = port.clock.monotonic_s()
        transport.set_write_buffer_limits(high=port.options.unsent_bytes_max)
        self._requests.begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back what is held."""
        del exc
        port = self._port
        if self not in port.connections:
            return
        self.ended = True
        held_bytes, self._held_bytes = self._held_bytes, 0
        port.gave_up(self, self.client[0])
        port.left(self, held_bytes=held_bytes)
        self._requests.end()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes are to be received; small pieces when room gets scarce."""
        assert self._share is not None
        is_over = self._share.is_over(self) and self._port.passing is not self
        growth_bytes_max = SCARCE_READ_BYTES if is_over else None
        buffer = self._reader.get_buffer(sizehint, growth_bytes_max)
        if self._reader.room_bytes != self.unframed_bytes:
            self._count(0)  # it grew
        if self._port.is_scarce():
            buffer = buffer[:SCARCE_READ_BYTES]
        self._offered_bytes = len(buffer)
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take in the requests that these bytes complete."""
        port = self._port
        now_s = port.clock.monotonic_s()
        if not self.unframed_bytes:
            self._frame_began_s = now_s
            self._window_bytes = 0
        self._window_bytes += nbytes
        framed_bytes = 0
        found = self._reader.updated(nbytes)
        is_full = nbytes == self._offered_bytes
        if found:
            for frame in found:
                self._requests.receive(frame, now_s)
                if isinstance(frame, FrameRun):
                    framed_bytes += frame.size_bytes
                    if not frame.bare:
                        port.read_tick.received(self, frame, is_full=is_full)
                elif not isinstance(frame, ProtocolError):
                    framed_bytes += len(frame) + SIZE_BYTES
            self._request_s = self._frame_began_s = now_s
            self._window_bytes = 0
            if port.passing is self:
                port.passing = None
        self._count(framed_bytes)
        if found:
            assert self._share is not None
            self._share.completed(self)
            self._requests.awaken()
        if self._must_wait():
            self.pause_reading()

    def _count(self, framed_bytes: int) -> None:
        """Count the requests that became complete, and what is allocated for the next one."""
        port, share = self._port, self._share
        assert share is not None
        more_bytes = self._reader.room_bytes - self.unframed_bytes
        self.unframed_bytes += more_bytes
        self._held_bytes += framed_bytes + more_bytes
        share.add(more_bytes)
        port.total_bytes += framed_bytes + more_bytes
        port.unframed_bytes += more_bytes

    def eof_received(self) -> bool:
        """The client will send nothing more: the transport closes."""
        return False

    def pause_writing(self) -> None:
        """The client does not read: its next requests wait."""
        self.writable = False

    def resume_writing(self) -> None:
        """The client has read: go on."""
        self.writable = True
        self._requests.awaken()

    # --- what the port says ------------------------------------------------------------------

    def may_go_on(self) -> None:
        """There is room for more bytes."""
        if self._reading or self.ended or self.draining or self._must_wait():
            return
        assert self._transport is not None
        self._reading = True
        # The time during which we did not read is not the client's fault.
        self._frame_began_s = self._port.clock.monotonic_s()
        self._window_bytes = 0
        if not self._resting:
            self._transport.resume_reading()

    def rest(self) -> bool:
        """Stop reading until `end_rest`; whether it was read until now."""
        if self._resting or not self._reading or self.ended:
            return False
        assert self._transport is not None
        self._resting = True
        self._transport.pause_reading()
        return True

    def end_rest(self) -> None:
        """Go on reading, unless something else is in the way."""
        self._resting = False
        if self._reading and not self.ended:
            assert self._transport is not None
            self._transport.resume_reading()

    def sweep(self, now_s: float) -> None:
        """Close the connection if its time is over."""
        if self._transport is None:
            return
        options = self._port.options
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes or (self._requests.is_busy and not unsent_bytes):
            self._request_s = now_s
        self._unsent_bytes = unsent_bytes
        if now_s - self._request_s > options.idle_timeout_s:
            self._end("connection_idle", level=logging.DEBUG)
        elif self.unframed_bytes and self._reading and not self.ended:
            window_s = now_s - self._frame_began_s
            if window_s <= options.frame_timeout_s:
                return
            # Over each such time: who sends much at once must not be slow for long afterwards.
            if self._window_bytes < window_s * options.frame_rate_min_bytes:
                self._port.stalled.inc()
                self._end("request_stalled", held_bytes=self.unframed_bytes)
            self._frame_began_s = now_s
            self._window_bytes = 0

    def drain(self) -> None:
        """Take no more requests; close when all that came are answered."""
        self.take_no_more()
        self.close_if_drained()

    def abort(self) -> None:
        """Close at once, whatever is owed."""
        self.ended = True
        if self._transport is not None:
            self._transport.abort()

    # --- what its requests say ---------------------------------------------------------------

    def take_no_more(self) -> None:
        """No request that comes from now on is taken; what was asked is answered."""
        self.draining = True
        self.pause_reading()

    def flush_soon(self) -> None:
        """Send what is ready at the end of this turn of the loop."""
        if not self._flushes_soon:
            self._flushes_soon = True
            self._port.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send the answers whose turn has come, all together."""
        self._flushes_soon = False
        if self.ended:
            return
        assert self._transport is not None
        outgoing, released_bytes, ends = self.answers.take()
        if outgoing:
            self._transport.writelines(outgoing)
        if released_bytes:
            self._held_bytes -= released_bytes
            self._port.release(released_bytes)
            self.may_go_on()
        if ends:
            self.ended = True
            self._transport.close()
        self._requests.awaken()
        self.close_if_drained()

    def close_if_drained(self) -> None:
        """Close when no more requests are taken and none is left."""
        if (
            self.draining
            and not self.ended
            and not self._requests.is_busy
            and not self.answers.outgoing
        ):
            assert self._transport is not None
            self.ended = True
            self._transport.close()
            self._requests.awaken()

    def pause_reading(self) -> None:
        """Let the client wait."""
        if self._reading and not self.ended:
            assert self._transport is not None
            self._reading = False
            if not self._resting:
                self._transport.pause_reading()

    def _must_wait(self) -> bool:
        options = self._port.options
        pending = self._requests.pending
        if pending >= options.connection_requests_max:
            return True
        if pending and self._held_bytes > options.connection_bytes_max:
            return True
        if self._port.passing is self:
            return False  # whoever has the port's pass needs none of its address
        assert self._share is not None
        return self._share.must_wait(self) or self._port.must_wait(self)

    def _end(self, name: str, /, level: int = logging.WARNING, **fields: object) -> None:
        self._port.quiet.say(name, level, client=self.client[0], **fields)
        self.abort()


def _address(name: object) -> tuple[str, int]:
    """Host and port of a socket name; a client that is gone already has none."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else ("", 0)
