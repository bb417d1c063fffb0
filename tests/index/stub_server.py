"""Somebody who answers HTTP as a test says, and an index that asks them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from lakelog.clock import SystemClock
from lakelog.domain.events import Swap
from lakelog.index.http_client import CallLimits, brokers_at
from lakelog.index.remote_index import RemoteIndex
from lakelog.streams.objects import FileKind, FileName

SWAP = Swap(1, 0, 2, FileName(FileKind.PARQUET, "compaction/v1/a"), 9, 9, (bytes(8),))
NOBODY = "127.0.0.1:1"
QUICK = CallLimits(connect_s=1.0, answer_s=0.3)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[str]:
    """Somebody who answers connections as the test says."""

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    listening = await asyncio.start_server(once, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        await listening.wait_closed()


async def question(reader: asyncio.StreamReader) -> bytes:
    """Read a whole request; empty at the end of the connection."""
    head = b""
    while line := await reader.readline():
        head += line
        if line == b"\r\n":
            break
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head + await reader.readexactly(int(line.split(b":")[1]))
    return head


def answering(status: int, body: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await question(reader):
            head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()

    return serve


async def hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await question(reader)


@asynccontextmanager
async def index_at(*addresses: str, limits: CallLimits = QUICK) -> AsyncIterator[RemoteIndex]:
    find = brokers_at(*(f"http://{address}" for address in addresses))
    index = RemoteIndex(find, "t", SystemClock(), limits)
    try:
        yield index
    finally:
        await index.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(bounded())
