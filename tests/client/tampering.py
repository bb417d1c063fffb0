"""A TCP proxy before a broker: it cuts connections and spoils bytes when a test says so."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

CHUNK_BYTES = 1 << 16


class TamperingProxy:
    """Carries bytes both ways; every thread may tell it what to do to them.

    `spoil` sees every piece on its way to the client and returns what arrives instead.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self._loop = loop
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = port
        self.target = ("127.0.0.1", 0)
        self.is_refusing = False
        self.cuts_left = 0
        self._cut_after_bytes = 0
        self._is_refusing_then = False
        self._passed = 0
        self.spoil: Callable[[bytes], bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut_after(self, size: int, *, times: int, refuse_then: bool = False) -> None:
        """Cut a connection whenever so many bytes more went to clients, so many times."""
        self._passed = 0
        self._cut_after_bytes = size
        self._is_refusing_then = refuse_then
        self.cuts_left = times

    def cut(self) -> None:
        """Break all connections."""

        def close() -> None:
            for writer in tuple(self._writers):
                writer.transport.abort()

        self._loop.call_soon_threadsafe(close)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_refusing:
            writer.transport.abort()
            return
        try:
            there, to_there = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, to_there}
        try:
            await asyncio.gather(
                self._carry(reader, to_there, is_answer=False),
                self._carry(there, writer, is_answer=True),
            )
        finally:
            for each in (writer, to_there):
                self._writers.discard(each)
                each.transport.abort()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        try:
            while piece := await reader.read(CHUNK_BYTES):
                if is_answer:
                    piece = self._pass(piece, writer)
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass
        writer.transport.abort()

    def _pass(self, piece: bytes, writer: asyncio.StreamWriter) -> bytes:
        if self.spoil is not None:
            piece = self.spoil(piece)
        self._passed += len(piece)
        if self.cuts_left and self._passed >= self._cut_after_bytes:
            self._passed = 0
            self.cuts_left -= 1
            self.is_refusing |= self._is_refusing_then and not self.cuts_left
            self._loop.call_soon(writer.transport.abort)
            return piece[: len(piece) // 2]
        return piece


@contextmanager
def tampering_proxy() -> Iterator[TamperingProxy]:
    """A proxy on a thread; set its `target` before anybody connects."""
    ready = threading.Event()
    made: list[TamperingProxy] = []
    stop: list[Callable[[], object]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await made[0].serve(reader, writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        made.append(TamperingProxy(loop, server.sockets[0].getsockname()[1]))
        stop.append(lambda: loop.call_soon_threadsafe(ended.set))
        ready.set()
        await ended.wait()
        server.close()
        made[0].cut()
        await asyncio.sleep(0)

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="tampering proxy")
    thread.start()
    assert ready.wait(10)
    try:
        yield made[0]
    finally:
        stop[0]()
        thread.join(10)
