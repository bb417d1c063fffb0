"""One connection to one broker: requests out, their answers in, in order; many under way at once.

Rules:

- A broker answers in the order in which it was asked, so the oldest request owns the next frame;
  its correlation id is checked all the same.
- A frame is received into its own memory and is never used again: what an answer keeps of it stays
  valid for as long as it is kept.
- When anything is wrong, all who wait hear of it at once and the connection is over. It is never
  repaired; whoever needs one asks `KafkaCluster` for the next.
- Whoever gives up waiting gives up only its answer: the frame is still read, and dropped.
- While credentials are exchanged on a living connection, other requests wait (KIP-368).
"""

import asyncio
import copy
import ssl
from collections import deque
from typing import Any, Final, Self, TypeVar, cast

from msgspec import Struct

from lakelog.kafka_client.failures import (
    ClientFailure,
    Closed,
    TimedOut,
    Unreachable,
    Unsupported,
    foreign_protocol,
    hung_up,
    no_common_version,
)
from lakelog.kafka_client.setting_keys import BrokerAddress
from lakelog.kafka_client.tls import tls_failure
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import APIS, Api, ApiKey
from lakelog.wire.framing import (
    SCRATCH_BYTES,
    FrameLimits,
    FrameReader,
    decode_response,
    encode_request,
)
from lakelog.wire.messages.api_versions import ApiVersionsResponse
from lakelog.wire.schema import Buffer, EncodeError, ProtocolError

AnswerT = TypeVar("AnswerT", bound=Struct)

GREETING_LIMITS: Final = FrameLimits(size_min=4, size_max=1024 * 1024)
"""For a peer that has not shown yet that it speaks Kafka."""

CORRELATION_IDS: Final = 1 << 31
UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")

_API_BY_REQUEST: Final[dict[type[Struct], Api]] = {api.request: api for api in APIS.values()}


class _Waiting:
    """One request that has no answer yet."""

    __slots__ = ("answer", "api", "correlation_id", "future", "sent_s", "timeout_s", "version")

    def __init__(
        self,
        api: Api,
        version: int,
        answer: type[Struct],
        future: "asyncio.Future[Any]",
        timeout_s: float,
    ) -> None:
        self.api = api
        self.version = version
        self.answer = answer
        self.future = future
        self.timeout_s = timeout_s
        self.sent_s = 0.0
        self.correlation_id = 0


class BrokerConnection(asyncio.BufferedProtocol):
    """A connection that speaks Kafka; made by `Dialer.connect`."""

    def __init__(
        self,
        endpoint: BrokerAddress,
        *,
        client_id: str,
        timeout_s: float,
        scratch: bytearray | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.versions: dict[int, range] = {}  # what the broker speaks, once it has said so
        self.failure: ClientFailure | None = None  # why it is over
        self.bytes_received = 0
        self.bytes_sent = 0
        self.requests_sent = 0
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._lost = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        scratch = bytearray(SCRATCH_BYTES) if scratch is None else scratch
        self._reader = FrameReader(scratch, GREETING_LIMITS)
        self._answers = 0
        self._waiting: deque[_Waiting] = deque()
        self._held: deque[tuple[Struct, _Waiting]] | None = None  # there while others must wait
        self._watchdog: asyncio.TimerHandle | None = None
        self._answered_s = 0.0  # when the last answer came

    # --- what callers do ------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return self.failure is None and self._transport is not None

    @property
    def in_flight(self) -> int:
        """How many requests have no answer yet."""
        return len(self._waiting) + len(self._held or ())

    def version(self, key: ApiKey, version_max: int | None = None) -> int:
        """The newest version of an API that both sides speak; raises Unsupported."""
        ours, theirs = APIS[key].versions, self.versions.get(key, range(0))
        newest = min(ours.stop, theirs.stop) - 1
        if version_max is not None:
            newest = min(newest, version_max)
        if newest < max(ours.start, theirs.start):
            raise Unsupported(APIS[key].name, f"{self.endpoint} {no_common_version(ours, theirs)}")
        return newest

    def send(
        self,
        request: Struct,
        answer: type[AnswerT],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> "asyncio.Future[AnswerT]":
        """Send a request; its answer, or why there is none, comes in the future.

        After `timeout_s` (`socket.timeout.ms`, if nothing is said) without an answer the connection
        is given up. Raises Unsupported, and nothing else.
        """
        api = _API_BY_REQUEST[type(request)]
        version = self.version(api.key) if version is None else version
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        waiting = _Waiting(api, version, answer, self._loop.create_future(), timeout_s)
        if self._held is not None and self.failure is None:
            self._held.append((request, waiting))
        else:
            self._send(request, waiting)
        return waiting.future

    async def call(
        self,
        request: Struct,
        answer: type[AnswerT],
        *,
        timeout_s: float | None = None,
        version_max: int | None = None,
    ) -> AnswerT:
        """Send a request and wait for its answer; raises Unreachable, TimedOut or Unsupported.

        A caller that gives up before `socket.timeout.ms` leaves the connection as it is.
        """
        api = _API_BY_REQUEST[type(request)]
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        future = self.send(
            request,
            answer,
            version=self.version(api.key, version_max),
            timeout_s=max(timeout_s, self._timeout_s),
        )
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise TimedOut(
                f"{self.endpoint} has not answered {api.name} within {timeout_s:g} s"
            ) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up and wait until the connection is gone."""
        self.abort()
        if self._transport is not None:
            await self.wait_lost()

    def abort(self, failure: ClientFailure | None = None) -> None:
        """Hang up at once; who waits hears `failure`, or Closed."""
        self._fail(failure or Closed(f"the connection to {self.endpoint} was closed"))

    async def wait_lost(self, timeout_s: float | None = None) -> bool:
        """Wait until the connection is gone, or for so long; returns whether it is gone."""
        await asyncio.wait([self._lost], timeout=timeout_s)
        return self._lost.done()

    # --- what `dialing` does --------------------------------------------------------------------

    def greeted(self, versions: dict[int, range], limits: FrameLimits) -> None:
        """The broker has said what it speaks: believe its frames."""
        self.versions = versions
        self._reader.limits = limits

    def hold(self) -> None:
        """Keep requests back from now on, but for those of `send_now`."""
        assert self._held is None, "credentials are exchanged by one at a time"
        self._held = deque()

    def send_now(
        self, request: Struct, answer: type[AnswerT], version: int
    ) -> "asyncio.Future[AnswerT]":
        """Send a request past those that are kept back."""
        api = _API_BY_REQUEST[type(request)]
        future = self._loop.create_future()
        self._send(request, _Waiting(api, version, answer, future, self._timeout_s))
        return future

    def release(self) -> None:
        """Send what was kept back."""
        held, self._held = self._held or deque(), None
        for request, waiting in held:
            if not waiting.future.done():
                self._send(request, waiting)

    # --- what the transport says ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        # uvloop's transports are Transports by what they do, not by their class.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes are to be received."""
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Hand out the answers that these bytes complete."""
        if self.failure is not None:
            return
        self.bytes_received += nbytes
        if not self._answers:
            foreign = foreign_protocol(self._reader.get_buffer(0), nbytes)
            if foreign:
                self._fail(Unreachable(f"{self.endpoint} {foreign}", is_final=True))
                return
        for frame in self._reader.updated(nbytes):
            if isinstance(frame, ProtocolError):
                self._fail(self._nonsense(frame))
                return
            assert isinstance(frame, memoryview), "answers do not come in runs"
            self._take(frame)

    def eof_received(self) -> bool:
        """The broker hung up; so do we."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all who wait."""
        if isinstance(exc, ssl.SSLError):
            self._fail(tls_failure(self.endpoint, exc))
        else:
            self._fail(self._hung_up(exc))
        if not self._lost.done():
            self._lost.set_result(None)

    # --- inside ---------------------------------------------------------------------------------

    def _send(self, request: Struct, waiting: _Waiting) -> None:
        if self.failure is not None or self._transport is None:
            _refuse(waiting.future, self.failure or Closed("the connection is not there yet"))
            return
        waiting.correlation_id = self.requests_sent % CORRELATION_IDS
        try:
            parts = encode_request(
                waiting.api, waiting.version, waiting.correlation_id, self._client_id, request
            )
        except EncodeError as reason:  # a value that this version has no room for
            _refuse(waiting.future, Unsupported(waiting.api.name, str(reason)))
            return
        self.requests_sent += 1
        waiting.sent_s = self._loop.time()
        self._waiting.append(waiting)
        self._write(parts)
        if len(self._waiting) == 1:
            self._set_watchdog(waiting)

    def _write(self, parts: list[Buffer]) -> None:
        assert self._transport is not None, "checked by _send"
        self.bytes_sent += sum(map(len, parts))
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)

    def _take(self, frame: memoryview) -> None:
        """Give a frame to the oldest request."""
        if not self._waiting:
            self._fail(self._nonsense(ProtocolError("an answer to nothing")))
            return
        waiting = self._waiting.popleft()
        try:
            correlation_id = int.from_bytes(frame[:4], "big")
            if correlation_id != waiting.correlation_id:
                raise ProtocolError(  # noqa: TRY301 - handled with the decoder's own
                    f"answer {correlation_id} to request {waiting.correlation_id}"
                )
            if not waiting.future.done():
                version = _answer_version(waiting, frame)
                waiting.future.set_result(decode_response(waiting.answer, version, frame)[1])
        except ProtocolError as reason:
            self._waiting.appendleft(waiting)
            self._fail(self._nonsense(reason))
            return
        self._answers += 1
        self._answered_s = self._loop.time()
        if self._waiting:
            self._set_watchdog(self._waiting[0])

    def _due_s(self, oldest: _Waiting) -> float:
        """When the oldest request is overdue: a broker works on one after the other."""
        return max(oldest.sent_s, self._answered_s) + oldest.timeout_s

    def _set_watchdog(self, oldest: _Waiting) -> None:
        """Look again when the oldest request is overdue, or before: one timer serves them all."""
        due_s = self._due_s(oldest)
        if self._watchdog is not None:
            if self._watchdog.when() <= due_s:
                return
            self._watchdog.cancel()
        self._watchdog = self._loop.call_at(due_s, self._watch)

    def _watch(self) -> None:
        """Give up on a broker that owes an answer for too long."""
        self._watchdog = None
        if not self._waiting:
            return
        oldest = self._waiting[0]
        if self._due_s(oldest) > self._loop.time():
            self._set_watchdog(oldest)
            return
        self._fail(
            Unreachable(
                f"{self.endpoint} has not answered {oldest.api.name} within {oldest.timeout_s:g} s"
            )
        )

    def _fail(self, failure: ClientFailure) -> None:
        """End the connection, once."""
        if self.failure is not None:
            return
        self.failure = failure
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        waiting, self._waiting = self._waiting, deque()
        held, self._held = self._held or deque(), None
        for one in (*waiting, *(later for _, later in held)):
            _refuse(one.future, failure)
        if self._transport is not None:
            self._transport.abort()

    def _nonsense(self, reason: ProtocolError) -> Unreachable:
        about = f" to {self._waiting[0].api.name}" if self._waiting else ""
        if not self._answers:
            return Unreachable(f"what answers at {self.endpoint} is no Kafka broker: {reason}")
        return Unreachable(f"the answer of {self.endpoint}{about} makes no sense: {reason}")

    def _hung_up(self, reason: Exception | None) -> Unreachable:
        transport = self._transport
        said = hung_up(
            at_api=self._waiting[0].api.name if self._waiting else "",
            answers=self._answers,
            has_tls=transport is not None and transport.get_extra_info("sslcontext") is not None,
            reason=reason,
        )
        return Unreachable(f"{self.endpoint} {said}")


def _answer_version(waiting: _Waiting, frame: memoryview) -> int:
    """The version of an answer: its request's, but for ApiVersions in an unknown version.

    That one is answered in version 0, which every client can read.
    """
    if waiting.answer is ApiVersionsResponse and frame[4:6] == UNSUPPORTED_VERSION:
        return 0
    return waiting.version


def _refuse(future: "asyncio.Future[Any]", failure: ClientFailure) -> None:
    if not future.done():
        future.set_exception(copy.copy(failure))  # a traceback belongs to one who waits
        future.exception()  # whoever dropped the future does not want to read of it in the log
