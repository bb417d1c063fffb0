"""A whole broker inside your test process, on a free port, gone when the test is.

    with EmbeddedBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

It is the real broker with its stores in memory, or in a directory when you name one, so that a
second broker on the same directory finds what the first one wrote. It runs on a thread and a loop
of its own: blocking clients can be used beside it. `async with` works as well.
"""

import asyncio
import platform
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from lakelog.broker.call import BrokerOptions
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.coordinator.options import GroupOptions
from lakelog.kafka_client.dialing import dial
from lakelog.kafka_client.failures import BrokerError
from lakelog.log.options import LogOptions
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.objects.local import LocalObjectStore
from lakelog.objects.memory import MemoryObjectStore
from lakelog.server.node import Node, NodeEnvironment, NodeOptions
from lakelog.server.options import Address
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

START_S_MAX: Final = 30.0
STOP_S_MAX: Final = 30.0
ANY_PORT: Final = Address("127.0.0.1", 0)

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """How the broker is to be; the defaults suit a test."""

    data: Path | None = None
    """A directory for its data; without one everything is in memory and gone at the end."""
    broker_id: int = 1
    listen: Address = ANY_PORT
    broker: BrokerOptions = field(default_factory=BrokerOptions)
    log: LogOptions = field(default_factory=lambda: LogOptions(linger_ms=0))
    groups: GroupOptions = field(default_factory=lambda: GroupOptions(initial_rebalance_delay_ms=0))


class EmbeddedBroker:
    """A broker that runs in a thread of this process from `start` to `stop`."""

    def __init__(self, options: EmbeddedOptions | None = None) -> None:
        self._options = options or EmbeddedOptions()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        """Where it listens."""
        assert self._address is not None, "the broker is not running"
        return self._address

    @property
    def bootstrap(self) -> str:
        """`host:port`, as clients want it in `bootstrap.servers`."""
        return str(self.address)

    def start(self) -> Self:
        """Start, and return when clients can connect."""
        assert self._thread is None, "the broker is running already"
        self._ready.clear()
        self._thread = threading.Thread(target=self._run, name="lakelog-broker", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_S_MAX):
            raise TimeoutError(f"the broker did not start within {START_S_MAX:g} s")
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._thread.join()
            self._thread = None
            raise failure
        return self

    def stop(self) -> None:
        """Stop; what was acknowledged is in the stores. Stopping twice is fine."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        assert self._loop is not None
        assert self._stop is not None
        with suppress(
            RuntimeError
        ):  # the loop ended by itself, with a failure that is raised below
            self._loop.call_soon_threadsafe(self._stop.set)
        thread.join(STOP_S_MAX)
        self._address = None
        if thread.is_alive():
            raise TimeoutError(f"the broker did not stop within {STOP_S_MAX:g} s")
        if self._failure is not None:
            raise self._failure

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; raises `BrokerError` with the broker's reason if it cannot be."""
        settings = tuple(CreatableTopicConfig(*pair) for pair in (configs or {}).items())
        topic = CreatableTopic(name, partitions, -1, configs=settings)

        async def create() -> None:
            async with await dial(self.bootstrap) as connection:
                answer = await connection.call(CreateTopicsRequest((topic,)), CreateTopicsResponse)
                result = answer.topics[0]
                if result.error_code:
                    raise BrokerError(result.error_code, name, result.error_message)

        self._call(create())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.get_running_loop().run_in_executor(None, self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.stop)

    def _call(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        assert self._loop is not None, "the broker is not running"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_S_MAX)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as failure:  # noqa: BLE001 - raised in the thread that asked
            self._failure = failure
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        options = self._options
        node_options = NodeOptions(
            listen=options.listen,
            broker_id=options.broker_id,
            machine=platform.node(),
            broker=options.broker,
            log=options.log,
            groups=options.groups,
        )
        async with _open_world(options.data) as world:
            node = Node(world, node_options)
            try:
                await node.start()
                self._address = node.address
                self._ready.set()
                await self._stop.wait()
            finally:
                await node.close()


@asynccontextmanager
async def _open_world(data: Path | None) -> AsyncIterator[NodeEnvironment]:
    clock, entropy = SystemClock(), SystemEntropy()
    if data is None:
        yield NodeEnvironment(MemoryMetadataStore(clock), MemoryObjectStore(clock), clock, entropy)
        return
    store = await SqliteMetadataStore.open(data / "metadata.db", clock)
    try:
        objects = await LocalObjectStore.open(data / "objects", clock, entropy)
        try:
            yield NodeEnvironment(store, objects, clock, entropy)
        finally:
            await objects.close()
    finally:
        await store.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    with suppress(ImportError):
        import uvloop  # noqa: PLC0415 - it is not there on every platform

        factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
        return factory
    return None
