"""HTTP calls from a loop, on a few threads: kept connections, time limits, and what surely failed.

The difference that matters is whether a byte of the question left: before, nothing can have
happened (`Unsent`); after, anything may have (`Lost`). A kept connection that the other side has
closed is noticed before it is used again, as far as that can be.
"""

import asyncio
import contextlib
import http.client
import select
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from lakelog.clock import Clock
from lakelog.model.failures import Failure

IDLE_S_MAX: Final = 15.0
"""A connection that was not used for so long is not used again; a broker keeps it twice as long."""


class Unsent(Failure):
    """Nothing left: there is nobody at that address."""


class Lost(Failure):
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


class HttpCalls:
    """Calls to any number of hosts."""

    def __init__(self, clock: Clock, limits: CallLimits | None = None) -> None:
        self._clock = clock
        self._limits = limits or CallLimits()
        self._pool = ThreadPoolExecutor(self._limits.threads, thread_name_prefix="lakelog-http")
        self._guard = threading.Lock()
        self._idle: dict[str, list[_Idle]] = {}
        self._busy: set[http.client.HTTPConnection] = set()
        self._is_closed = False

    async def post(self, address: str, path: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Ask; raises `Unsent` or `Lost`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._post, address, path, body, headers)

    async def close(self) -> None:
        """Hang up everywhere and end the threads."""
        with self._guard:
            self._is_closed = True
            kept = [one.connection for some in self._idle.values() for one in some]
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
        await loop.run_in_executor(None, self._pool.shutdown)

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
            raise Lost(f"{address} did not answer: {reason!r}", was_kept=was_kept) from reason
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
            raise Unsent(f"{address} cannot be reached: {reason}") from reason
        connection.sock.settimeout(self._limits.answer_s)
        return connection

    def _taken(self, address: str) -> http.client.HTTPConnection | None:
        """A kept connection that nobody has closed, as far as can be seen."""
        while True:
            with self._guard:
                kept = self._idle.get(address)
                one = kept.pop() if kept else None
            if one is None:
                return None
            fresh = self._clock.monotonic_s() - one.since_s < IDLE_S_MAX
            if fresh and not _is_readable(one.connection):
                return one.connection
            one.connection.close()

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
