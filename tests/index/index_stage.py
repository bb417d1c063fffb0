"""A broker's index behind a real HTTP port, those who ask it, and a log with entries in it."""

import asyncio
import http.client
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field

import msgspec
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from tests.broker.whole import whole_broker
from tests.memory_cluster import MemoryCluster, batch

from lakelog.broker.call import Broker
from lakelog.clock import SeededEntropy
from lakelog.domain.events import Swap
from lakelog.http.service import serve
from lakelog.index.broker_index import BrokerIndex
from lakelog.index.http_client import brokers_at
from lakelog.index.http_server import pipeline_routes
from lakelog.index.messages import QuestionPath
from lakelog.index.ports import LogIndex, StreamRange, StreamView
from lakelog.index.remote_index import RemoteIndex
from lakelog.streams.objects import FileKind, FileName, digest
from lakelog.topics.cluster import PipelineToken, pipeline_token
from lakelog.topics.topic import Topic

ENTROPY = SeededEntropy("tokens")


@asynccontextmanager
async def port(routes: Sequence[BaseRoute]) -> AsyncIterator[str]:
    """An HTTP port with these routes, as host:port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        serving = asyncio.create_task(serve(Starlette(routes=list(routes)), listening))
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            serving.cancel()
            await asyncio.wait([serving])


@dataclass(frozen=True, slots=True)
class Ask:
    """Asks what it is told to, sensible or not, and returns status and body."""

    address: str
    headers: Mapping[str, str] = field(default_factory=dict)

    async def __call__(
        self,
        questions: QuestionPath,
        name: str,
        question: object = b"",
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        body = question if isinstance(question, bytes) else msgspec.msgpack.encode(question)
        sent = dict(self.headers if headers is None else headers)

        def ask() -> tuple[int, bytes]:
            with closing(http.client.HTTPConnection(self.address, timeout=10)) as connection:
                connection.request(method, questions.path + name, body, sent)
                answer = connection.getresponse()
                return answer.status, answer.read()

        return await asyncio.get_running_loop().run_in_executor(None, ask)


@asynccontextmanager
async def http_port(broker: Broker, cluster: MemoryCluster) -> AsyncIterator[str]:
    """The broker's index for the pipeline, as host:port."""
    token = PipelineToken(cluster.metadata, ENTROPY)
    async with port(pipeline_routes(BrokerIndex(broker, cluster.clock), token.get)) as address:
        yield address


@asynccontextmanager
async def remote_index(address: str, cluster: MemoryCluster) -> AsyncIterator[RemoteIndex]:
    """The index through that port."""
    token = await pipeline_token(cluster.metadata, ENTROPY)
    index = RemoteIndex(brokers_at(f"http://{address}"), token, cluster.clock)
    try:
        yield index
    finally:
        await index.close()


@asynccontextmanager
async def opened(
    kind: str, cluster: MemoryCluster, *, domains: int = 1
) -> AsyncIterator[tuple[Broker, LogIndex]]:
    """A broker and its index, in process or over HTTP."""
    async with whole_broker(cluster, domains=domains) as broker:
        if kind == "broker":
            yield broker, BrokerIndex(broker, cluster.clock)
            return
        async with http_port(broker, cluster) as address, remote_index(address, cluster) as index:
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
