"""One client connection as requests: handled in the order they came, answered in that order.

A handler that returns `Later` has taken its place in the log, and the connection's next request
begins while its answer is awaited.

Rules:

- A client that sends what is not the protocol, or that a handler asks to close, is still answered
  what it asked before; then the connection ends. So it is with a handler that fails unforeseen,
  which is logged with its traceback and harms nobody else.
- A client that goes away ends its parked fetch; any other request runs to its end.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from msgspec import Struct

from lakelog.broker.call import Answer, Call, CloseConnection, Later, NoAnswer
from lakelog.broker.loop_turn import is_large, on_thread
from lakelog.server.answers import Place
from lakelog.server.flow import SIZE_BYTES, Flow
from lakelog.server.traffic import Traffic, log
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.errors import ProtocolError
from lakelog.wire.framing import RequestHeader, encode_response, parse_request_header
from lakelog.wire.schema import Buffer

TURN_REQUESTS_MAX: Final = 64
"""So many requests of one connection are handled before other connections get their turn."""

COALESCED_BYTES_MAX: Final = 4 * 1024
"""An answer up to this size waits for the others of its turn."""

PARKED_APIS: Final = frozenset({ApiKey.FETCH})
"""Requests that only wait and read: nobody needs their outcome once the client is gone."""

Made = TypeVar("Made")

API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
NO_API: Final = -1


class Session(Flow):
    """The requests of one connection."""

    __slots__ = ("_current_key", "_parked", "_task")

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._current_key = NO_API  # whose handler runs now
        self._task: asyncio.Task[None] | None = None
        self._parked: set[asyncio.Task[Any]] = set()

    def began(self) -> None:
        """Start handling."""
        self._task = self.traffic.tasks.spawn(self._run(), name="session")

    def lost(self) -> None:
        """End what was only waiting for this client."""
        for parked in self._parked:
            parked.cancel()
        if self._task is not None and self._current_key in PARKED_APIS:
            self._task.cancel()

    async def _run(self) -> None:
        """Handle requests until the connection ends; whatever goes wrong, only it ends."""
        try:
            await self._handle_all()
        except Exception as reason:  # noqa: BLE001 - a bug here must not end the port
            self._fail(reason, NO_API)
            self.abort()

    async def _handle_all(self) -> None:
        """Handle the requests of this connection, one after another."""
        turn = 0
        while not self.ended:
            if not self.may_begin():
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
                self.flush()
                await asyncio.sleep(0)

    async def _sleep(self) -> None:
        self.flush()
        if self.ended or self.may_begin():
            return
        wake = self.wake = self.traffic.loop.create_future()
        self.close_if_drained()
        try:
            await wake
        finally:
            self.wake = None

    async def _handle(self, frame: memoryview, arrived_s: float) -> None:
        size_bytes = len(frame) + SIZE_BYTES
        try:
            header = parse_request_header(frame)
            self._current_key = key = header.api_key
            call = Call(
                version=header.api_version,
                client_id=header.client_id,
                client_host=self.client[0],
                server_host=self.server[0],
                server_port=self.server[1],
                connection=self.number,
                arrived_s=arrived_s,
                request_bytes=size_bytes,
            )
            outcome = await self.traffic.dispatch(key, call, frame[header.body_start :])
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
            if self.ended or self.traffic.draining:
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
            self.released_bytes += call.request_bytes
            if len(parts) > 1 or (parts and len(parts[0]) > COALESCED_BYTES_MAX):
                self.flush()  # so that a client that does not read is noticed at once
        traffic = self.traffic
        traffic.answered(header.api_key, traffic.clock.monotonic_s() - call.arrived_s)

    def _await_answer(self, header: RequestHeader, later: Later, call: Call) -> None:
        place = self.answers.reserve(call.request_bytes)
        work, finish = later.work, later.finish or _same
        if not isinstance(work, asyncio.Future):
            promised = work
            work = self.traffic.tasks.spawn(_caught(promised), name="request")
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
        if self.ended:
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
        traffic = self.traffic
        traffic.answered(header.api_key, traffic.clock.monotonic_s() - arrived_s)
        if not self.flush_soon:
            self.flush_soon = True
            traffic.loop.call_soon(self.flush)

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
        self.traffic.quiet.say(
            "connection_closed", client=self.client[0], reason=str(reason) or "as Kafka does"
        )
        self._end_at(place)

    def _fail(self, reason: BaseException, key: int, place: Place | None = None) -> None:
        """The same after a failure that nobody foresaw, with everything that helps to find it."""
        self.traffic.failures.inc()
        fields = {"client": self.client[0], "api": APIS[key].name if key in APIS else key}
        log.error("request_failed", exc_info=reason, extra={"fields": fields})
        self._end_at(place)

    def _end_at(self, place: Place | None) -> None:
        place = place or self.answers.reserve(0)
        place.ends_connection = True
        self.frames.clear()
        self.draining = True
        self.pause_reading()


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
