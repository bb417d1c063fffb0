"""A connection that members share: requests go out at once, answers come back in order.

Rules: a lane never reconnects; when its connection ends, everyone who waits hears it. A member
whose JoinGroup may wait needs a lane to itself meanwhile, because answers keep their order.
"""

import asyncio
import struct
from collections import deque
from typing import cast

from bench.broker import HOST
from bench.raw import frame

CONNECTS_AT_ONCE = 40
BACKOFF_S, BACKOFF_MAX_S = 0.05, 1.0


class Lane(asyncio.Protocol):
    """One connection with any number of requests under way."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self._received = bytearray()
        self._correlation_id = 0
        self._loop = asyncio.get_running_loop()
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transports are no subclass of asyncio's, only of the same shape.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Give every whole answer to whoever waited longest."""
        self._received += data
        start = 0
        while len(self._received) - start >= 8:
            size, correlation_id = struct.unpack_from(">ii", self._received, start)
            if len(self._received) - start < 4 + size:
                break
            expected, future = self._waiting.popleft()
            assert correlation_id == expected, (correlation_id, expected)
            if not future.done():
                future.set_result(bytes(self._received[start + 8 : start + 4 + size]))
            start += 4 + size
        del self._received[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail everyone who waits."""
        self.lost = True
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(exc or ConnectionError("the broker closed the connection"))

    def ask(self, api_key: int, version: int, body: bytes) -> asyncio.Future[bytes]:
        """Send one request now; the future gets the answer's body."""
        future = self._loop.create_future()
        if self.lost or self._transport is None:
            future.set_exception(ConnectionError("the connection is gone"))
            return future
        self._correlation_id += 1
        self._waiting.append((self._correlation_id, future))
        self._transport.write(frame(api_key, version, self._correlation_id, body))
        return future

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


async def connect(port: int) -> Lane:
    """Open one lane."""
    _, lane = await asyncio.get_running_loop().create_connection(Lane, HOST, port)
    return lane


async def connect_patiently(port: int) -> Lane:
    """Open one lane, trying again as clients do until somebody listens."""
    backoff_s = BACKOFF_S
    while True:
        try:
            return await connect(port)
        except OSError:
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)


async def open_lanes(port: int, count: int) -> list[Lane]:
    """Open many lanes, some at a time: a storm of connects is another benchmark."""
    lanes: list[Lane] = []
    for start in range(0, count, CONNECTS_AT_ONCE):
        some = min(CONNECTS_AT_ONCE, count - start)
        lanes += await asyncio.gather(*(connect(port) for _ in range(some)))
    return lanes
