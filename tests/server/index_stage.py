"""A whole broker with its HTTP port, and a log with entries of every kind in it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.broker.whole import Stores, whole_broker
from tests.log.world import batch

from lakelog.broker.broker import Broker
from lakelog.clock import SeededEntropy
from lakelog.domain.events import Swap
from lakelog.http.client import brokers_at
from lakelog.http.pipeline import pipeline_routes
from lakelog.http.service import serve_pages
from lakelog.index.ports import LogIndex, StreamRange, StreamView
from lakelog.pipeline.remote_index import RemoteIndex
from lakelog.server.pipeline_index import BrokerIndex
from lakelog.streams.objects import FileKind, FileName, digest
from lakelog.topics.cluster import PipelineToken, pipeline_token
from lakelog.topics.topic import Topic

ENTROPY = SeededEntropy("tokens")


@asynccontextmanager
async def http_port(broker: Broker, stores: Stores) -> AsyncIterator[str]:
    """The broker's HTTP port, as host:port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        index = BrokerIndex(broker, stores.clock)
        token = PipelineToken(stores.metadata, ENTROPY)
        serving = asyncio.create_task(
            serve_pages(
                listening,
                checks={},
                registry=broker.metrics.registry,
                index_of=_no_index,
                clock=stores.clock,
                routes=pipeline_routes(index, token.get),
            )
        )
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            serving.cancel()
            await asyncio.wait([serving])


async def _no_index(topic: str, partition: int) -> list[dict[str, object]]:
    raise AssertionError((topic, partition))


@asynccontextmanager
async def remote_index(address: str, stores: Stores) -> AsyncIterator[RemoteIndex]:
    """The index through that port."""
    token = await pipeline_token(stores.metadata, ENTROPY)
    index = RemoteIndex(brokers_at(f"http://{address}"), token, stores.clock)
    try:
        yield index
    finally:
        await index.close()


@asynccontextmanager
async def opened(
    kind: str, stores: Stores, *, domains: int = 1
) -> AsyncIterator[tuple[Broker, LogIndex]]:
    """A broker and its index, in process or over HTTP."""
    async with whole_broker(stores, domains=domains) as broker:
        if kind == "broker":
            yield broker, BrokerIndex(broker, stores.clock)
            return
        async with http_port(broker, stores) as address, remote_index(address, stores) as index:
            yield broker, index


async def made(broker: Broker, name: str, partitions: int = 1, **configs: str) -> Topic:
    """A topic; configs are written with `_` for `.`."""
    return await broker.topics.create(
        name,
        partitions=partitions,
        replication_factor=1,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )


async def filled(broker: Broker, streams: Sequence[int], *, objects: int) -> None:
    """Write one batch of two records to each stream, in each of so many WAL objects."""
    for _ in range(objects):
        deadline_s = broker.clock.monotonic_s() + 10
        batches = [batch(b"one", b"two") for _ in streams]
        await broker.log.append(sorted(streams), batches, deadline_s=deadline_s)


def swap_of(view: StreamView, *, start: int, end: int, key: str) -> Swap:
    """The event that puts a data file in the place of these entries."""
    replaced = tuple(digest(entry.name) for entry in view.overlapping(start=start, end=end))
    return Swap(view.stream, start, end, FileName(FileKind.PARQUET, key), 100, 7, replaced)


async def swapped(index: LogIndex, stream: int, *, start: int, end: int, key: str) -> None:
    """Put a data file in the place of the range."""
    (view,) = await index.views([StreamRange(stream, start, end)])
    assert view is not None
    outcome = await index.swap(swap_of(view, start=start, end=end, key=key))
    assert outcome.accepted, outcome
