"""The composition root: from options to a running broker, and down again in good order.

The HTTP port's libraries are imported once the Kafka port serves, on a thread: a start must not
wait for them.
"""

import asyncio
import contextlib
import gc
import importlib
import logging
import platform
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

from lakelog.broker.call import BrokerOptions
from lakelog.clock import SystemClock, SystemEntropy, Tasks
from lakelog.config.options import HTTP_LISTEN, Options
from lakelog.config.stores import open_metadata, open_objects
from lakelog.records.kernels import keep_freed_memory
from lakelog.server.node import Node, NodeEnvironment, NodeOptions
from lakelog.server.options import Address, bind, refusal
from lakelog.telemetry import event
from lakelog.topics.tables import TableOptions

HTTP_BACKLOG: Final = 128
log = logging.getLogger("lakelog")


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker that serves, as those who tell of it see it."""

    address: Address
    http: Address | None
    metadata_url: str
    objects_url: str


def node_options(options: Options, http: Address | None = None) -> NodeOptions:
    """What a broker is told; `http` is where its HTTP port is, taken already."""
    return NodeOptions(
        listen=options.broker.listen,
        broker_id=options.broker.id,
        advertised=options.broker.advertised,
        zone=options.broker.zone,
        machine=platform.node(),
        domains=options.metadata.domains,
        broker=BrokerOptions(
            auto_create_topics=options.topics.auto_create,
            num_partitions=options.topics.num_partitions,
            default_replication_factor=options.topics.default_replication_factor,
            idempotence=options.features.idempotence,
        ),
        server=options.server,
        log=options.log,
        domain=options.domain,
        topics=options.topic_defaults(),
        groups=options.groups,
        http=http,
        tables=TableOptions(options.tables.is_builtin(), options.tables.namespace),
    )


@contextlib.asynccontextmanager
async def open_world(options: Options) -> AsyncIterator[NodeEnvironment]:
    """The stores, opened; they are closed on the way out."""
    clock, entropy = SystemClock(), SystemEntropy()
    store = await open_metadata(options.metadata_url(), clock)
    try:
        objects = await open_objects(
            options.objects_url(),
            options.objects.options,
            clock,
            entropy,
            clock_jump_max_ms=options.objects.clock_jump_max_ms,
        )
        try:
            yield NodeEnvironment(store, objects, clock, entropy)
        finally:
            await objects.close()
    finally:
        await store.close()


def bind_http(options: Options) -> tuple[socket.socket, Address] | None:
    """The HTTP port, taken; when only the default one is in use, another."""
    wanted = options.http.listen
    if wanted is None:
        return None
    try:
        taken = bind(wanted)
    except OSError as error:
        if wanted != HTTP_LISTEN or "http.listen" in options.sources:
            raise refusal(wanted, error) from None
        taken = bind(replace(wanted, port=0))
    taken.listen(HTTP_BACKLOG)
    return taken, Address(wanted.host, int(taken.getsockname()[1]))


COLLECTOR_THRESHOLDS: Final = (20_000, 50, 1_000)
"""When the cyclic collector looks for garbage. A broker under load makes many objects and hardly
any cycles; with Python's own numbers looking took a third of the time of small batches."""


async def run_broker(
    options: Options,
    announce: Callable[[RunningBroker], None],
    beside: Callable[[Address], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return; raises what made it stop otherwise.

    `beside` runs as long as the broker serves, with the address of its HTTP port.
    """
    stop = _stop_by_signal()
    http = bind_http(options)
    try:
        async with open_world(options) as world:
            shown = http[1] if http else None
            node = Node(world, node_options(options, shown))
            try:
                await node.start()
                gc.freeze()  # what is here now stays: no need to look at it again
                gc.set_threshold(*COLLECTOR_THRESHOLDS)
                keep_freed_memory()
                announce(
                    RunningBroker(node.address, shown, options.metadata_url(), world.objects.url)
                )
                pages = (
                    None if http is None else partial(_serve_http, node, world, options, http[0])
                )
                companion = None if beside is None or shown is None else partial(beside, shown)
                await _serve(node, world, pages, stop, companion)
            finally:
                await node.close()
    finally:
        if http is not None:
            http[0].close()


@contextlib.asynccontextmanager
async def embedded_broker(options: Options) -> AsyncIterator[RunningBroker]:
    """A broker with its HTTP port inside this process, for as long as it is entered."""
    http = bind_http(options)
    shown = http[1] if http else None
    tasks = Tasks()
    try:
        async with open_world(options) as world:
            node = Node(world, node_options(options, shown))
            try:
                await node.start()
                if http is not None:
                    tasks.spawn(_serve_http(node, world, options, http[0]), name="http")
                yield RunningBroker(node.address, shown, options.metadata_url(), world.objects.url)
                await node.drain()
            finally:
                await tasks.close()
                await node.close()
    finally:
        if http is not None:
            http[0].close()


def _stop_by_signal() -> asyncio.Event:
    """An event that the first SIGTERM or SIGINT sets; a second one does not wait for the drain."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def stopped() -> None:
        stop.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, stopped)
    return stop


@runtime_checkable
class FailingStore(Protocol):
    """A store that can fail for good."""

    async def failed(self) -> None:
        """Wait until it does, and raise why."""


async def _serve(
    node: Node,
    world: NodeEnvironment,
    pages: Callable[[], Coroutine[Any, Any, None]] | None,
    stop: asyncio.Event,
    beside: Callable[[], Coroutine[Any, Any, None]] | None,
) -> None:
    """Serve until somebody says stop, then drain; raises what fails meanwhile."""
    tasks = Tasks()
    waiting = [tasks.spawn(node.failed(), name="node"), tasks.spawn(stop.wait(), name="stop")]
    mortal = [store for store in (world.store, world.objects) if isinstance(store, FailingStore)]
    waiting += [tasks.spawn(store.failed(), name="store") for store in mortal]
    if pages is not None:
        waiting.append(tasks.spawn(pages(), name="http"))
    companion = None if beside is None else tasks.spawn(beside(), name="beside")
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            failure = task.exception()
            if failure is not None:
                event(log, "failed", logging.ERROR, reason=str(failure))
                raise failure
        event(log, "stopping")
        if companion is not None:
            companion.cancel()  # it ends while we drain
        await node.drain()
        if companion is not None:
            await asyncio.wait({companion})
    finally:
        # What failed was raised above.
        with contextlib.suppress(Exception):
            await tasks.close()


async def _serve_http(
    node: Node, world: NodeEnvironment, options: Options, listening: socket.socket
) -> None:
    module = "lakelog.cli.http_port"
    with ThreadPoolExecutor(1, thread_name_prefix="lakelog-import") as pool:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(pool, importlib.import_module, module)
    from lakelog.cli.http_port import serve_http  # noqa: PLC0415 - imported by the thread above

    await serve_http(node, world, options, listening)
