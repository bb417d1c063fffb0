"""Questions to a cluster over HTTP, from any process: msgpack there and back.

Any broker may be asked, so one that does not answer is followed by the next, and the one that
answered is asked first from then on. Whether a question may go to another broker after a byte of it
has left is its `Repeat`: before, nothing can have happened; after, anything may have. A failure is
told accordingly: `Unavailable` where no broker can have done anything, `OutcomeUnknown` where one
may have.

Calls run on a few threads, over connections that are kept. One that the other side has closed is
noticed before it is used again, as far as that can be.
"""

import asyncio
import contextlib
import http.client
import select
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec

from lakelog.clock import Clock, SystemClock
from lakelog.index.messages import CONTENT_TYPE, failure_in
from lakelog.model.failures import Corrupt, Failure, OutcomeUnknown, Refused, Unavailable

IDLE_S_MAX: Final = 15.0
"""A connection that was not used for so long is not used again; a broker keeps it twice as long."""

FindBrokers: TypeAlias = Callable[[], Awaitable[Sequence[str]]]
"""The addresses (host:port) of brokers' HTTP ports; raises `Unavailable`."""

AnswerT = TypeVar("AnswerT")


class Repeat(Enum):
    """What may be done when it is not known whether a broker did what it was asked."""

    READ = "read"
    """Nothing is changed by the question: anybody may be asked again."""
    IDEMPOTENT = "idempotent"
    """A repeat is harmless, so others are asked; but if none answers, it may have been done."""
    NEVER = "never"
    """Once a byte left, nobody else may be asked."""


class NotSent(Failure):
    """Nothing left: there is nobody at that address."""


class NoReply(Failure):
    """The question left, and no whole answer came."""

    def __init__(self, text: str, *, was_kept: bool) -> None:
        super().__init__(text)
        self.was_kept = was_kept
        """Whether the connection was one from an earlier call."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How long calls take, how many run at once, how large an answer may be."""

    threads: int = 4
    connect_s: float = 3.0
    answer_s: float = 30.0
    answer_bytes_max: int = 512 << 20


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class _Idle:
    connection: http.client.HTTPConnection
    since_s: float


class HttpPool:
    """Calls to any number of hosts, over connections that are kept."""

    def __init__(self, clock: Clock, limits: CallLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.threads, thread_name_prefix="lakelog-http")
        self._guard = threading.Lock()
        self._idle: dict[str, list[_Idle]] = {}
        self._busy: set[http.client.HTTPConnection] = set()
        self._is_closed = False

    async def post(self, address: str, path: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Ask; raises `NotSent` or `NoReply`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._post, address, path, body, headers)

    async def close(self) -> None:
        """Hang up everywhere and end the threads."""
        with self._guard:
            self._is_closed = True
            kept = [idle.connection for of_host in self._idle.values() for idle in of_host]
            self._idle.clear()
            busy = list(self._busy)
        for connection in kept:
            connection.close()
        for connection in busy:  # wakes the thread that reads from it
            sock = connection.sock
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(2)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._threads.shutdown)

    def _post(self, address: str, path: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        kept = self._taken(address)
        connection = kept or self._connected(address)
        with self._guard:
            self._busy.add(connection)
        try:
            reply, is_kept = self._exchanged(connection, path, body, headers)
        except (OSError, http.client.HTTPException) as reason:
            connection.close()
            was_kept = kept is not None
            raise NoReply(f"{address} did not answer: {reason!r}", was_kept=was_kept) from reason
        finally:
            with self._guard:
                self._busy.discard(connection)
        self._put_back(address, connection, is_kept=is_kept)
        return reply

    def _exchanged(
        self,
        connection: http.client.HTTPConnection,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
    ) -> tuple[Reply, bool]:
        connection.request("POST", path, body, dict(headers))
        answer = connection.getresponse()
        limit = self._limits.answer_bytes_max
        content = answer.read(limit + 1)
        if len(content) > limit:
            raise http.client.HTTPException(f"an answer of more than {limit} bytes")
        return Reply(answer.status, content), answer.isclosed() and not answer.will_close

    def _connected(self, address: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(address, timeout=self._limits.connect_s)
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as reason:
            connection.close()
            raise NotSent(f"{address} cannot be reached: {reason}") from reason
        connection.sock.settimeout(self._limits.answer_s)
        return connection

    def _taken(self, address: str) -> http.client.HTTPConnection | None:
        """A kept connection that nobody has closed, as far as can be seen."""
        while True:
            with self._guard:
                kept = self._idle.get(address)
                idle = kept.pop() if kept else None
            if idle is None:
                return None
            is_fresh = self._clock.monotonic_s() - idle.since_s < IDLE_S_MAX
            if is_fresh and not _is_readable(idle.connection):
                return idle.connection
            idle.connection.close()

    def _put_back(
        self, address: str, connection: http.client.HTTPConnection, *, is_kept: bool
    ) -> None:
        with self._guard:
            if is_kept and not self._is_closed:
                since_s = self._clock.monotonic_s()
                self._idle.setdefault(address, []).append(_Idle(connection, since_s))
                return
        connection.close()


def _is_readable(connection: http.client.HTTPConnection) -> bool:
    """Whether something lies there unasked: the end of the connection, or what nobody expects."""
    sock = connection.sock
    if sock is None:
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


class BrokerClient:
    """Asks whichever broker answers; `serves` says whom the path is for, if that is to be told."""

    def __init__(
        self,
        find: FindBrokers,
        path: str,
        *,
        serves: str | None = None,
        token: str | None = None,
        clock: Clock | None = None,
        limits: CallLimits | None = None,
    ) -> None:
        self._find = find
        self._path = path
        self._serves = serves
        self._headers = {"Content-Type": CONTENT_TYPE}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._pool = HttpPool(clock or SystemClock(), limits or CallLimits())
        self._brokers: list[str] = []

    async def close(self) -> None:
        """End the connections and threads."""
        await self._pool.close()

    async def ask(
        self, name: str, question: object, kind: type[AnswerT], *, repeat: Repeat = Repeat.READ
    ) -> AnswerT:
        """The answer of the first broker that has one.

        Raises `Unavailable`, `OutcomeUnknown` (not for a `READ`), or what a broker told: `Refused`,
        `NotFound`, `Conflict`.
        """
        body = b"" if question is None else msgspec.msgpack.encode(question)
        failure: Failure = Unavailable("no broker has an HTTP port")
        may_be_done = False
        tried: set[str] = set()
        for known in (self._brokers, None):  # those that answered before, then all there are
            brokers = list(await self._find()) if known is None else known
            for address in brokers:
                if address in tried:
                    continue
                tried.add(address)
                try:
                    answer = await self._ask_one(address, name, body, kind, repeat)
                except Unavailable as reason:
                    failure = reason
                except OutcomeUnknown as reason:
                    if repeat is Repeat.NEVER:
                        raise
                    failure = reason
                    may_be_done = repeat is not Repeat.READ
                else:
                    self._brokers = [address, *(other for other in brokers if other != address)]
                    return answer
        said = f"no broker answers: {failure}"
        raise (OutcomeUnknown(said) if may_be_done else Unavailable(said)) from failure

    async def _ask_one(
        self, address: str, name: str, body: bytes, kind: type[AnswerT], repeat: Repeat
    ) -> AnswerT:
        """One broker's answer; `Unavailable`: nothing happened there."""
        reply = await self._posted(address, name, body, repeat)
        if reply.status == 200:
            try:
                return msgspec.msgpack.decode(reply.body, type=kind)
            except msgspec.MsgspecError as reason:
                said = f"{address}: the answer to {name} cannot be read: {reason}"
                raise OutcomeUnknown(said) from reason
        told = failure_in(reply.body)
        if told is not None and not isinstance(told, Unavailable | OutcomeUnknown | Corrupt):
            raise told
        if told is None and reply.status == 404 and self._serves is not None:
            raise Refused(
                f"http://{address} is not the HTTP port of a broker that serves {self._serves}"
            )
        said = f"{address} answered {reply.status}" + ("" if told is None else f": {told}")
        raise Unavailable(said) if isinstance(told, Unavailable) else OutcomeUnknown(said)

    async def _posted(self, address: str, name: str, body: bytes, repeat: Repeat) -> Reply:
        path = self._path + name
        try:
            return await self._pool.post(address, path, body, self._headers)
        except NotSent as reason:
            raise Unavailable(str(reason)) from reason
        except NoReply as reason:
            if repeat is Repeat.NEVER or not reason.was_kept:
                raise OutcomeUnknown(str(reason)) from reason
        # The broker let go of a connection that nobody used, as we took it up again.
        try:
            return await self._pool.post(address, path, body, self._headers)
        except (NotSent, NoReply) as reason:
            raise OutcomeUnknown(str(reason)) from reason


def brokers_at(*urls: str) -> FindBrokers:
    """Brokers whose HTTP ports are known, as http://HOST:PORT; raises `Refused`."""
    addresses = []
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.netloc or parts.path.strip("/"):
            raise Refused(f"{url!r} is not the address of a broker's HTTP port: http://HOST:PORT")
        addresses.append(parts.netloc)
    return known_brokers(addresses)


def known_brokers(addresses: Sequence[str]) -> FindBrokers:
    """Brokers whose HTTP ports are known, as HOST:PORT."""
    assert addresses, "nobody to ask"

    async def find() -> Sequence[str]:
        return addresses

    return find
