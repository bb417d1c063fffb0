"""Our broker with what belongs to its tables: the HTTP port, a pipeline beside it or in process.

Rules: the data directory outlives the broker, so that a cold one can be measured. What a broker
read of its objects is what the kernel counts for its process: on a directory every GET is a read.
"""

import asyncio
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from bench.broker import HOST, Launch, ProcessBroker, free_ports
from bench.clients import ClientError
from bench.ours import start_ours
from lakelog.catalog.port import Tables
from lakelog.catalog.tables import builtin_tables
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.config.stores import open_metadata, open_objects
from lakelog.index.remote_index import RemoteIndex
from lakelog.meta import keys
from lakelog.meta.port import MetadataStore
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.options import PipelineOptions
from lakelog.pipeline.ports import TaskEngine
from lakelog.pipeline.round_report import RoundReport
from lakelog.pipeline.rounds import Pipeline
from lakelog.topics.cluster import ClusterRecord

NAMESPACE = "lakelog"
HTTP_TIMEOUT_S = 10.0
ROUNDS_MAX = 100


class Lake:
    """A broker of ours on a directory, which can be started again."""

    def __init__(self, data: Path, core: int | None) -> None:
        self.data = data
        self._core = core
        self._broker: ProcessBroker | None = None
        self.http_port = 0

    @property
    def broker(self) -> ProcessBroker:
        """The running broker."""
        assert self._broker is not None, "start() comes first"
        return self._broker

    def start(self) -> None:
        """Start a broker; whatever was in the memory of the last one is forgotten."""
        self.stop()
        port, self.http_port = free_ports(2)
        self._broker = start_ours(self.data, port=port, http_port=self.http_port, core=self._core)

    def stop(self) -> None:
        """Stop the broker, if it runs."""
        if self._broker is not None:
            self._broker.stop()
            self._broker = None

    def get(self, path: str) -> bytes:
        """Return what the HTTP port answers."""
        url = f"http://{HOST}:{self.http_port}{path}"
        with urllib.request.urlopen(url, timeout=HTTP_TIMEOUT_S) as answer:
            content: bytes = answer.read()
        return content

    def counter(self, name: str) -> float:
        """Return one of the broker's own counters."""
        for line in self.get("/metrics").decode().splitlines():
            found, _, value = line.partition(" ")
            if found == name:
                return float(value)
        raise ClientError(f"/metrics has no {name}")

    def read_bytes(self) -> int:
        """Return what the broker has read from files so far; 0 where the kernel does not say."""
        counters = psutil.Process(self.broker.pid).io_counters()
        return int(getattr(counters, "read_chars", 0))


def create_topics(
    bootstrap: str, topics: Sequence[str], partitions: int, freshness_ms: int
) -> None:
    """Create topics whose tables are to be that fresh."""
    config = {"lakelog.table.freshness.ms": str(freshness_ms)}
    wanted = [NewTopic(topic, partitions, 1, config=config) for topic in topics]
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    for made in admin.create_topics(wanted).values():
        made.result()


def start_pipeline(data: Path, *, master: str, interval_s: float) -> ProcessBroker:
    """Start the pipeline as its own process, by the command that users type."""
    command = [
        *(sys.executable, "-m", "lakelog.cli.main", "pipeline", "--data", str(data)),
        *("--master", master, "--interval", str(interval_s), "--log-level", "warning"),
    ]
    log_path = data.with_name(f"{data.name}-pipeline.log")
    return ProcessBroker(Launch("pipeline", command, 0, log_path))


@dataclass(frozen=True, slots=True)
class Workshop:
    """What a pipeline in this process works with, over the stores of a running broker."""

    meta: MetadataStore
    objects: ObjectStore
    index: RemoteIndex
    tables: Tables
    domains: int

    def pipeline(self, engine: TaskEngine) -> Pipeline:
        """Return a pipeline that has its files made by this engine."""
        return Pipeline(
            self.meta,
            self.objects,
            self.index,
            self.tables,
            engine,
            clock=SystemClock(),
            entropy=SystemEntropy(),
            options=PipelineOptions(domains=self.domains, namespace=NAMESPACE),
        )


@asynccontextmanager
async def workshop(data: Path) -> AsyncIterator[Workshop]:
    """Open the stores below a broker's directory, and its index over HTTP."""
    clock, entropy = SystemClock(), SystemEntropy()
    async with AsyncExitStack() as stack:
        meta = await open_metadata(f"sqlite:{data / 'metadata.db'}", clock)
        stack.push_async_callback(meta.close)
        cluster = await meta.get(keys.CLUSTER)
        assert cluster is not None, "the broker has started"
        domains = msgspec.json.decode(cluster.value, type=ClusterRecord).domains
        objects = await open_objects(objects_url(data), {}, clock, entropy)
        stack.push_async_callback(objects.close)
        index = await RemoteIndex.open(meta, clock, entropy)
        stack.push_async_callback(index.close)
        tables = builtin_tables(meta, objects, clock)
        stack.push_async_callback(tables.close)
        yield Workshop(meta, objects, index, tables, domains)


def objects_url(data: Path) -> str:
    """Return the object store of a broker's directory, as other processes understand it."""
    return f"file:{(data / 'objects').resolve()}"


def in_workshop(data: Path, work: Callable[[Workshop], Awaitable[None]]) -> None:
    """Do something with the stores of a broker."""

    async def opened() -> None:
        async with workshop(data) as shop:
            await work(shop)

    asyncio.run(opened())


async def catch_up(pipeline: Pipeline) -> int:
    """Make rounds until there is nothing to do; return the rows of the files that were made."""
    rows = 0
    for _ in range(ROUNDS_MAX):
        report = await pipeline.round()
        check_round(report)
        rows += sum(topic.rows for topic in report.topics)
        if report.is_idle:
            return rows
    raise ClientError(f"the pipeline is not done after {ROUNDS_MAX} rounds")


def check_round(report: RoundReport) -> None:
    """Raise if something kept the pipeline from going on."""
    for obstacle in report.all_obstacles:
        raise ClientError(f"the pipeline: {obstacle.topic} {obstacle.reason}")


def vector_of(metadata: Mapping[str, object]) -> dict[int, int]:
    """Return up to which offset the table of this metadata holds each partition."""
    properties = metadata["properties"]
    assert isinstance(properties, dict), properties
    return msgspec.json.decode(properties.get("lakelog.offsets", "{}"), type=dict[int, int])
