"""A real broker with its HTTP port on a thread, clients that produce, and compaction beside it."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Producer

from lakelog.catalog.tables import builtin_tables
from lakelog.cli.compose import RunningBroker, embedded_broker
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.config.load import load
from lakelog.config.options import Options
from lakelog.config.stores import open_metadata, open_objects
from lakelog.index.ports import IndexedTopic, PinnedRange
from lakelog.index.remote_index import HttpIndex, RemoteIndex
from lakelog.kafka_client.dialing import dial
from lakelog.pipeline.files.run_task import InlineEngine
from lakelog.pipeline.options import PipelineOptions
from lakelog.pipeline.planning.wal_ranges import PlanOptions
from lakelog.pipeline.rounds import Pipeline
from lakelog.streams.objects import FileKind
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lakelog.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

EAGER = PipelineOptions(domains=1, plan=PlanOptions(freshness_ms=0), retry_ms=1, retry_ms_max=1)
T = TypeVar("T")


def reading_threads() -> list[str]:
    """The threads of reads that go on; the broker beside them has threads of its own."""
    return [each.name for each in threading.enumerate() if each.name.startswith("lakelog-read")]


@dataclass
class Broker:
    """A broker that runs, and the loop that it runs on."""

    running: RunningBroker
    options: Options
    loop: asyncio.AbstractEventLoop

    @property
    def server(self) -> str:
        assert self.running.http is not None
        return f"http://{self.running.http}"

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        async def create() -> None:
            chosen = tuple(
                CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()
            )
            topic = CreatableTopic(name, partitions, -1, configs=chosen)
            async with await dial(str(self.running.address)) as client:
                answer = await client.call(CreateTopicsRequest((topic,)), CreateTopicsResponse)
                assert not answer.topics[0].error_code, answer

        self.call(create())

    def delete(self, name: str) -> None:
        async def delete() -> None:
            async with await dial(str(self.running.address)) as client:
                request = DeleteTopicsRequest((DeleteTopicState(name),))
                answer = await client.call(request, DeleteTopicsResponse)
                assert not answer.responses[0].error_code, answer

        self.call(delete())

    def produce(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        partition: int = 0,
        first_ms: int = 1_700_000_000_000,
        codec: str = "lz4",
    ) -> None:
        """One record for each value, a second apart."""
        producer = Producer(
            {"bootstrap.servers": str(self.running.address), "compression.type": codec}
        )
        for number, value in enumerate(values):
            producer.produce(
                topic,
                value,
                b"k%d" % number,
                partition,
                timestamp=first_ms + number * 1000,
                headers=[("h", b"x")] if number % 2 else [],
            )
        assert producer.flush(30) == 0

    def kinds(self, topic: str, partitions: int) -> list[list[FileKind]]:
        """What the entries of each partition point into."""
        return self.call(self._kinds(topic, partitions))

    async def _kinds(self, topic: str, partitions: int) -> list[list[FileKind]]:
        index = HttpIndex([self.server.removeprefix("http://")])
        try:
            (found,) = await index.topics([topic])
            ranges = [
                PinnedRange(topic, b"", at, found.streams[at], 0, 1 << 40)
                for at in range(partitions)
            ]
            placed = await index.located(ranges)
            return [[entry.kind for entry in one.entries] for one in placed if one is not None]
        finally:
            await index.close()

    def topics(self) -> Sequence[IndexedTopic]:
        """The topics as a pipeline sees them."""
        return self.call(self._topics())

    async def _topics(self) -> Sequence[IndexedTopic]:
        meta = await open_metadata(self.options.metadata_url(), SystemClock())
        index = await RemoteIndex.open(meta, SystemClock(), SystemEntropy())
        try:
            return await index.topics()
        finally:
            await index.close()
            await meta.close()

    def compact(self) -> None:
        """One round of the pipeline over everything."""
        self.call(self._compact())

    async def _compact(self) -> None:
        clock, entropy, options = SystemClock(), SystemEntropy(), self.options
        meta = await open_metadata(options.metadata_url(), clock)
        keys = options.objects.options
        objects = await open_objects(options.objects_url(), keys, clock, entropy)
        index = await RemoteIndex.open(meta, clock, entropy)
        tables = builtin_tables(meta, objects, clock)
        try:
            pipeline = Pipeline(
                meta,
                objects,
                index,
                tables,
                InlineEngine(objects),
                clock=clock,
                entropy=entropy,
                options=EAGER,
            )
            report = await pipeline.round()
            assert report.all_obstacles == ()
        finally:
            await tables.close()
            await index.close()
            await objects.close()
            await meta.close()


@contextmanager
def running_broker(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """A broker with its data in that folder, told more than that if need be."""
    ports = {"broker.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0"}
    options = load(None, {}, {**ports, "broker.data": str(folder), **(more or {})})
    ready = threading.Event()
    made: list[Broker] = []
    failures: list[BaseException] = []
    stop = asyncio.Event()

    async def serve() -> None:
        async with embedded_broker(options) as running:
            made.append(Broker(running, options, asyncio.get_running_loop()))
            ready.set()
            await stop.wait()

    def work() -> None:
        try:
            asyncio.run(serve())
        except BaseException as failure:  # noqa: BLE001 - shown by the test
            failures.append(failure)
        finally:
            ready.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(30)
    if failures:
        raise failures[0]
    try:
        yield made[0]
    finally:
        made[0].loop.call_soon_threadsafe(stop.set)
        thread.join(30)
    assert not failures, failures
