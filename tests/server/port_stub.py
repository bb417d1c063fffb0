"""A Kafka port with a stub behind it, on either loop, and the bytes to talk to it."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import uvloop

from lakelog.broker.call import Answer, Call, Later
from lakelog.clock import SystemClock
from lakelog.server.listener import Listener
from lakelog.server.options import Address, ServerOptions
from lakelog.server.port import Dispatch
from lakelog.telemetry import MetricsRegistry
from lakelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

LOOPS = ("asyncio", "uvloop")
PATIENCE_S = 10.0
API_VERSIONS, FETCH, METADATA, PRODUCE = 18, 1, 3, 0
Result = TypeVar("Result")


def run(loop: str, work: Coroutine[Any, Any, Result]) -> Result:
    """Run the coroutine on that loop."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if loop == "uvloop":
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(asyncio.wait_for(work, PATIENCE_S * 3))


@asynccontextmanager
async def port(
    dispatch: Dispatch, options: ServerOptions | None = None
) -> AsyncIterator[tuple[Listener, Address]]:
    """A listening port that hands requests to the stub."""
    listener = Listener(
        dispatch, clock=SystemClock(), metrics=MetricsRegistry(), options=options or ServerOptions()
    )
    address = await listener.start(Address("127.0.0.1", 0))
    try:
        yield listener, address
    finally:
        await listener.close()


def request(
    correlation_id: int, *, key: int = API_VERSIONS, version: int = 2, body: bytes = b""
) -> bytes:
    """A whole request frame with header version 1 and no client id."""
    content = struct.pack(">hhih", key, version, correlation_id, -1) + body
    return struct.pack(">i", len(content)) + content


def answer(size: int = 0) -> ApiVersionsResponse:
    """An answer of about that many bytes."""
    return ApiVersionsResponse(api_keys=(ApiVersion(0, 0, 0),) * (size // 6))


async def echo(_key: int, _call: Call, _body: memoryview) -> Answer | Later:
    """Answer at once."""
    return answer()


class Talk:
    """A client that sees every byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @staticmethod
    async def open(address: Address) -> "Talk":
        """Connect."""
        return Talk(*await asyncio.open_connection(address.host, address.port))

    def send(self, *frames: bytes) -> None:
        """Send bytes, without waiting."""
        self.writer.write(b"".join(frames))

    async def receive(self) -> int:
        """The correlation id of the next answer."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return int.from_bytes((await self.reader.readexactly(size))[:4], "big")

    async def is_closed(self) -> bool:
        """Whether the port closes the connection, within our patience, and sends nothing first."""
        try:
            return not await asyncio.wait_for(self.reader.read(1), PATIENCE_S)
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        """Hang up."""
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            return


class Held:
    """A stub whose answers wait until the test lets them go."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[Answer]] = []

    async def __call__(self, _key: int, _call: Call, _body: memoryview) -> Answer | Later:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        return Later(future)

    async def came(self, count: int) -> None:
        """Return when that many requests were handed over."""
        await eventually(lambda: len(self.futures) >= count)


async def eventually(holds: Callable[[], bool]) -> None:
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.002)


async def settled(value: Callable[[], int], turns: int = 50) -> int:
    """The value once it has not changed for that many turns of the loop."""
    last, same = value(), 0
    while same < turns:
        await asyncio.sleep(0.002)
        now = value()
        same = same + 1 if now == last else 0
        last = now
    return last
