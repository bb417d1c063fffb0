"""The requests of one connection: handled in the order they came, answered in that order.

A handler that returns `Later` has taken its place in the log, and the connection's next request
begins while its answer is awaited. Answers leave in the order of the requests, whatever finishes
first (row 97): a request takes a place among the answers when its handler has returned, its answer
is put there when it is known, and what may be sent is the run of finished places at the front. A
place may also say that the connection ends there: everything before it is still answered.

Rules:

- A client that sends what is not the protocol, or that a handler asks to close, is still answered
  what it asked before; then the connection ends. So it is with a handler that fails unforeseen,
  which is logged with its traceback and harms nobody else.
- A client that goes away ends its parked fetch; any other request runs to its end.
"""

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from lakelog.broker.call import Answer, Call, CloseConnection, Later, NoAnswer
from lakelog.broker.loop_turn import is_large, on_thread
from lakelog.server.port import PortState, log
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.framing import SIZE_BYTES, RequestHeader, encode_response, parse_request_header
from lakelog.wire.schema import Buffer, ProtocolError

if TYPE_CHECKING:
    from lakelog.server.connection import ClientConnection

TURN_REQUESTS_MAX: Final = 64
"""So many requests of one connection are handled before other connections get their turn."""

COALESCED_BYTES_MAX: Final = 4 * 1024
"""An answer up to this size waits for the others of its turn."""

PARKED_APIS: Final = frozenset({ApiKey.FETCH})
"""Requests that only wait and read: nobody needs their outcome once the client is gone."""

Made = TypeVar("Made")

API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
NO_API: Final = -1


class Place:
    """The turn of one request among the answers of its connection."""

    __slots__ = ("ends_connection", "parts", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes  # of the request: held until it is answered
        self.parts: Sequence[Buffer] | None = None
        self.ends_connection = False


class Answers:
    """The places of one connection, oldest first."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: deque[Place] = deque()

    def __len__(self) -> int:
        return len(self._places)

    def reserve(self, size_bytes: int) -> Place:
        """The next place, for a request of that size."""
        place = Place(size_bytes)
        self._places.append(place)
        return place

    def take(self, outgoing: list[Buffer]) -> tuple[int, bool]:
        """Move what may be sent now to `outgoing`.

        Returns the bytes of the requests that are done with, and whether the connection ends.
        """
        released_bytes = 0
        places = self._places
        while places:
            place = places[0]
            if place.ends_connection:
                return released_bytes, True
            if place.parts is None:
                break
            outgoing.extend(place.parts)
            released_bytes += place.size_bytes
            places.popleft()
        return released_bytes, False


class Requests:
    """The requests of one connection; its connection receives them and sends their answers."""

    __slots__ = (
        "_connection",
        "_current_key",
        "_parked",
        "_port",
        "_released_bytes",
        "_task",
        "_wake",
        "answers",
        "frames",
        "outgoing",
    )

    def __init__(self, connection: "ClientConnection", port: PortState) -> None:
        self.frames: deque[tuple[memoryview | ProtocolError, float]] = deque()
        self.answers = Answers()
        self.outgoing: list[Buffer] = []  # answers whose turn has come
        self._released_bytes = 0  # of requests that were answered since the last flush
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

    def end(self) -> None:
        """The connection is gone: end what was only waiting for this client."""
        self.frames.clear()
        self.outgoing.clear()
        for parked in self._parked:
            parked.cancel()
        if self._task is not None and self._current_key in PARKED_APIS:
            self._task.cancel()
        self.awaken()

    def awaken(self) -> None:
        """Go on if there is something to do."""
        wake = self._wake
        if wake is not None and not wake.done() and (self._connection.ended or self._may_begin()):
            wake.set_result(None)

    def take_answers(self) -> tuple[int, bool]:
        """Move what may be sent to `outgoing`.

        Returns the bytes of the requests that are done with, and whether the connection ends.
        """
        released_bytes, ends = self.answers.take(self.outgoing)
        released_bytes += self._released_bytes
        self._released_bytes = 0
        return released_bytes, ends

    @property
    def pending(self) -> int:
        """Requests that were received and not answered, without the one that is handled now."""
        return len(self.frames) + len(self.answers)

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
            frame, arrived_s = self.frames.popleft()
            if isinstance(frame, ProtocolError):
                self._refuse(frame)
                continue
            await self._handle(frame, arrived_s)
            turn += 1
            if turn == TURN_REQUESTS_MAX:
                turn = 0
                connection.flush()
                await asyncio.sleep(0)

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
                self._answer(header, await on_thread(_encoded, header, outcome), call)
            else:
                self._answer(header, _encoded(header, outcome), call)
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
            self.outgoing.extend(parts)
            self._released_bytes += call.request_bytes
            if len(parts) > 1 or (parts and len(parts[0]) > COALESCED_BYTES_MAX):
                self._connection.flush()  # so that a client that does not read is noticed at once
        port = self._port
        port.answered(header.api_key, port.clock.monotonic_s() - call.arrived_s)

    def _await_answer(self, header: RequestHeader, later: Later, call: Call) -> None:
        place = self.answers.reserve(call.request_bytes)
        work, finish = later.work, later.finish or _same
        if not isinstance(work, asyncio.Future):
            promised = work
            work = self._port.tasks.spawn(_caught(promised), name="request")
            # A task that is cancelled before its first step never begins what it was given.
            work.add_done_callback(lambda _: promised.close())
            finish = functools.partial(_uncaught, finish)
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
            place.parts = answer if isinstance(answer, list) else _encoded(header, answer)
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
        encoding = on_thread(_encoded, header, answer)
        encoding.add_done_callback(
            functools.partial(self._finished, place, header, _same, arrived_s)
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
        self.frames.clear()
        self._connection.take_no_more()


def _encoded(header: RequestHeader, answer: Answer) -> list[Buffer]:
    """The answer's bytes; none for a request that gets no answer."""
    if isinstance(answer, NoAnswer):
        return []
    if header.api_key == API_VERSIONS:
        known = header.api_version in APIS[header.api_key].versions
        # Row 25: an unknown version is answered in the one that every client can read.
        return encode_response(header, answer, header.api_version if known else 0)
    return encode_response(header, answer)


async def _caught(work: Coroutine[Any, Any, Any]) -> tuple[Any, Exception | None]:
    """Run a handler's own work so that its failure is the connection's, not the port's."""
    try:
        return await work, None
    except Exception as reason:  # noqa: BLE001 - handed on to the connection
        return None, reason


def _uncaught(finish: Callable[[Any], Answer], result: tuple[Any, Exception | None]) -> Answer:
    value, reason = result
    if reason is not None:
        raise reason
    return finish(value)


def _same(answer: Made) -> Made:
    return answer
