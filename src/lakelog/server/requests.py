"""The requests of one connection: handled in the order they came, answered in that order.

A handler that returns `Later` has taken its place in the log, and the connection's next request
begins while its answer is awaited (`answers`). Produce requests that came together are given to
`produce_rows` first: what is plain among them is handed to the log at once, without a task, and has
one place among the answers. Order holds by construction: they are taken only when it is their turn.

Rules:

- A client that sends what is not the protocol, or that a handler asks to close, is still answered
  what it asked before; then the connection ends. So it is with a handler that fails unforeseen,
  which is logged with its traceback and harms nobody else.
- A client that goes away ends its parked fetch; any other request runs to its end.
"""

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from lakelog.broker.call import Answer, Call, CloseConnection, Later
from lakelog.broker.loop_turn import is_large, on_thread
from lakelog.broker.produce_rows import LOOP_HELD_S_MAX, PlainRequests
from lakelog.log.values import Settled
from lakelog.server.answers import Place, caught, encoded, same, uncaught
from lakelog.server.port import PortState, log
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.frame_runs import SIZE_BYTES, FrameRun
from lakelog.wire.framing import Received, RequestHeader, parse_request_header
from lakelog.wire.schema import Buffer, ProtocolError

if TYPE_CHECKING:
    from lakelog.server.connection import ClientConnection

TURN_REQUESTS_MAX: Final = 64
"""So many requests of one connection are handled before other connections get their turn."""

COALESCED_BYTES_MAX: Final = 4 * 1024
"""An answer up to this size waits for the others of its turn."""

PARKED_APIS: Final = frozenset({ApiKey.FETCH})
"""Requests that only wait and read: nobody needs their outcome once the client is gone."""

NO_API: Final = -1


class Requests:
    """The requests of one connection; its connection receives them and sends their answers."""

    __slots__ = (
        "_connection",
        "_current_key",
        "_parked",
        "_port",
        "_task",
        "_unhandled",
        "_wake",
        "answers",
        "frames",
    )

    def __init__(self, connection: "ClientConnection", port: PortState) -> None:
        self.frames: deque[tuple[Received, float]] = deque()
        self._unhandled = 0  # requests in them
        self.answers = connection.answers
        self._connection = connection
        self._port = port
        self._wake: asyncio.Future[None] | None = None  # there while nothing is handled
        self._current_key = NO_API  # whose handler runs now
        self._task: asyncio.Task[None] | None = None
        self._parked: set[asyncio.Task[Any]] = set()

    # --- what the connection says ------------------------------------------------------------

    def begin(self) -> None:
        """Start handling."""
        self._task = self._port.tasks.spawn(self._run(), name="requests")

    def receive(self, frame: Received, arrived_s: float) -> None:
        """Take in what came; `awaken` goes on with it."""
        self.frames.append((frame, arrived_s))
        self._unhandled += frame.count if isinstance(frame, FrameRun) else 1

    def end(self) -> None:
        """The connection is gone: end what was only waiting for this client."""
        self._forget_frames()
        self.answers.outgoing.clear()
        for parked in self._parked:
            parked.cancel()
        if self._task is not None and self._current_key in PARKED_APIS:
            self._task.cancel()
        self.awaken()

    def awaken(self) -> None:
        """Go on if there is something to do."""
        wake = self._wake
        if wake is None or wake.done():
            return
        if not self._connection.ended:
            # Nothing is being handled, so what is plain needs no task to have its turn.
            self._take_runs()
        if self._connection.ended or self._may_begin():
            wake.set_result(None)

    @property
    def pending(self) -> int:
        """Requests that were received and not answered, without the one that is handled now."""
        return self._unhandled + len(self.answers)

    @property
    def is_busy(self) -> bool:
        """Whether a request is waiting, being handled or not answered."""
        return self._wake is None or bool(self.frames) or bool(self.answers)

    # --- one after another -------------------------------------------------------------------

    def _may_begin(self) -> bool:
        """Whether the next request may be handled now."""
        return (
            bool(self.frames)
            and self._connection.writable
            and len(self.answers) < self._port.options.connection_requests_max
        )

    async def _run(self) -> None:
        """Handle requests until the connection ends; whatever goes wrong, only it ends."""
        try:
            await self._handle_all()
        except Exception as reason:  # noqa: BLE001 - a bug here must not end the port
            self._fail(reason, NO_API)
            self._connection.abort()

    async def _handle_all(self) -> None:
        """Handle the requests of this connection, one after another."""
        turn = 0
        connection = self._connection
        while not connection.ended:
            if not self._may_begin():
                turn = 0
                await self._sleep()
                continue
            frame, arrived_s = self._next_frame()
            if isinstance(frame, ProtocolError):
                self._refuse(frame)
                continue
            if frame is not None:
                await self._handle(frame, arrived_s)
            turn += 1
            if turn == TURN_REQUESTS_MAX:
                turn = 0
                connection.flush()
                await asyncio.sleep(0)

    def _next_frame(self) -> tuple[memoryview | ProtocolError | None, float]:
        """The next request and when it came; None when plain ones were taken instead."""
        frame, arrived_s = self.frames[0]
        if not isinstance(frame, FrameRun):
            self.frames.popleft()
            self._unhandled -= 1
            return frame, arrived_s
        if self._take_plain(frame, arrived_s):
            return None, arrived_s
        alone = frame.take_frame()
        self._unhandled -= 1
        if not frame.count:
            self.frames.popleft()
        return alone, arrived_s

    def _take_runs(self) -> None:
        """Take plain requests as long as such are next, and not for long (R2)."""
        clock = self._port.clock
        began_s = clock.monotonic_s()
        try:
            while self._may_begin():
                frame, arrived_s = self.frames[0]
                if not isinstance(frame, FrameRun) or not self._take_plain(frame, arrived_s):
                    return
                if clock.monotonic_s() - began_s > LOOP_HELD_S_MAX:
                    return
        except Exception as reason:  # noqa: BLE001 - one connection ends, the process lives
            self._fail(reason, ApiKey.PRODUCE)

    def _take_plain(self, run: FrameRun, arrived_s: float) -> bool:
        """Hand the plain requests that the run goes on with to the log; whether there are any."""
        rows = self._port.produce_rows
        assert rows is not None, "without it there are no runs"
        before_bytes = run.size_bytes
        plain = rows.take(run)
        if plain is None:
            return False
        self._unhandled -= len(plain)
        if not run.count:
            self.frames.popleft()
        place = self.answers.reserve(before_bytes - run.size_bytes, len(plain))
        settle = functools.partial(self._settled, place, plain, arrived_s)
        rows.hand_over(plain, arrived_s=arrived_s, settle=settle)
        return True

    def _settled(
        self, place: Place, plain: PlainRequests, arrived_s: float, settled: Settled
    ) -> None:
        """What became of plain requests is known: answer them all."""
        port = self._port
        if self._connection.ended:
            return
        try:
            assert port.produce_rows is not None
            place.parts = port.produce_rows.answer(plain, settled)
        except Exception as reason:  # noqa: BLE001 - as in _handle
            self._fail(reason, ApiKey.PRODUCE, place)
        port.answered(ApiKey.PRODUCE, port.clock.monotonic_s() - arrived_s, len(plain))
        self._connection.flush_soon()

    async def _sleep(self) -> None:
        self._connection.flush()
        if self._connection.ended or self._may_begin():
            return
        wake = self._wake = self._port.loop.create_future()
        self._connection.close_if_drained()
        try:
            await wake
        finally:
            self._wake = None

    async def _handle(self, frame: memoryview, arrived_s: float) -> None:
        size_bytes = len(frame) + SIZE_BYTES
        connection = self._connection
        try:
            header = parse_request_header(frame)
            self._current_key = key = header.api_key
            call = Call(
                version=header.api_version,
                client_id=header.client_id,
                client_host=connection.client[0],
                server_host=connection.server[0],
                server_port=connection.server[1],
                connection=connection.number,
                arrived_s=arrived_s,
                request_bytes=size_bytes,
            )
            outcome = await self._port.dispatch(key, call, frame[header.body_start :])
            if isinstance(outcome, Later):
                self._await_answer(header, outcome, call)
            elif isinstance(outcome, Struct) and is_large(outcome):
                # The next request waits: answers that nobody reads must not pile up (R1).
                self._answer(header, await on_thread(encoded, header, outcome), call)
            else:
                self._answer(header, encoded(header, outcome), call)
        except (ProtocolError, CloseConnection) as reason:
            self._refuse(reason)
        except asyncio.CancelledError as reason:
            if connection.ended or self._port.draining:
                raise
            self._fail(reason, self._current_key)
        except Exception as reason:  # noqa: BLE001 - one connection ends, the process lives
            self._fail(reason, self._current_key)
        finally:
            self._current_key = NO_API

    def _answer(self, header: RequestHeader, parts: list[Buffer], call: Call) -> None:
        if self.answers:
            self.answers.reserve(call.request_bytes).parts = parts
        else:
            self.answers.put_now(parts, call.request_bytes)
            if len(parts) > 1 or (parts and len(parts[0]) > COALESCED_BYTES_MAX):
                self._connection.flush()  # so that a client that does not read is noticed at once
        port = self._port
        port.answered(header.api_key, port.clock.monotonic_s() - call.arrived_s)

    def _await_answer(self, header: RequestHeader, later: Later, call: Call) -> None:
        place = self.answers.reserve(call.request_bytes)
        work, finish = later.work, later.finish or same
        if not isinstance(work, asyncio.Future):
            promised = work
            work = self._port.tasks.spawn(caught(promised), name="request")
            # A task that is cancelled before its first step never begins what it was given.
            work.add_done_callback(lambda _: promised.close())
            finish = functools.partial(uncaught, finish)
            if header.api_key in PARKED_APIS:
                self._parked.add(work)
                work.add_done_callback(self._parked.discard)
        work.add_done_callback(
            functools.partial(self._finished, place, header, finish, call.arrived_s)
        )

    def _finished(
        self,
        place: Place,
        header: RequestHeader,
        finish: Callable[[Any], Answer | list[Buffer]],
        arrived_s: float,
        work: "asyncio.Future[Any]",
    ) -> None:
        if self._connection.ended:
            if not work.cancelled():
                work.exception()  # heard: nobody is left to tell
            return
        try:
            answer = finish(work.result())
            if isinstance(answer, Struct) and is_large(answer):
                self._encode_slowly(place, header, answer, arrived_s)
                return
            place.parts = answer if isinstance(answer, list) else encoded(header, answer)
        except (ProtocolError, CloseConnection) as reason:
            self._refuse(reason, place)
        except (Exception, asyncio.CancelledError) as reason:  # noqa: BLE001 - as in _handle
            self._fail(reason, header.api_key, place)
        port = self._port
        port.answered(header.api_key, port.clock.monotonic_s() - arrived_s)
        self._connection.flush_soon()

    def _encode_slowly(
        self, place: Place, header: RequestHeader, answer: Answer, arrived_s: float
    ) -> None:
        """Encode on a thread: nothing pauses that, and it may take as long as the handler (R2)."""
        encoding = on_thread(encoded, header, answer)
        encoding.add_done_callback(
            functools.partial(self._finished, place, header, same, arrived_s)
        )

    def _refuse(self, reason: Exception, place: Place | None = None) -> None:
        """End the connection behind the answers that come before."""
        self._port.quiet.say(
            "connection_closed",
            client=self._connection.client[0],
            reason=str(reason) or "as Kafka does",
        )
        self._end_at(place)

    def _fail(self, reason: BaseException, key: int, place: Place | None = None) -> None:
        """The same after a failure that nobody foresaw, with everything that helps to find it."""
        self._port.failures.inc()
        fields = {
            "client": self._connection.client[0],
            "api": APIS[key].name if key in APIS else key,
        }
        log.error("request_failed", exc_info=reason, extra={"fields": fields})
        self._end_at(place)

    def _end_at(self, place: Place | None) -> None:
        place = place or self.answers.reserve(0)
        place.ends_connection = True
        self._forget_frames()
        self._connection.take_no_more()

    def _forget_frames(self) -> None:
        self.frames.clear()
        self._unhandled = 0
