"""B10: many connections: a storm of connects, requests on all of them, memory, and the active few.

The storm opens every connection at once and each asks ApiVersions. Then all ask in a closed loop,
one request at a time each. Then all but a few stay idle and the few produce one record at a time.
"""

import asyncio
import itertools
import time
from typing import cast

from bench.arena import Arena
from bench.broker import HOST, ProcessBroker
from bench.pipeline import make_batches, run_loop
from bench.raw import (
    API_VERSIONS,
    PRODUCE,
    PRODUCE_VERSION,
    Client,
    Pipe,
    check_produced,
    frame,
    produce_body,
)
from bench.results import Metric, Sample, percentiles_ms

NAME = "b10"
ACTIVE = 8
CONNECT_TIMEOUT_S = 180.0
WARM_UP_RUN_S = 5.0
METRICS = (
    Metric("connects_s", "1/s"),
    Metric("requests_s", "1/s"),
    Metric("requests_per_cpu_s", "1/broker-cpu-s"),
    Metric("kb_per_connection", "kB", more_is_better=False),
    Metric("active_p50_ms", "ms", more_is_better=False),
    Metric("active_p99_ms", "ms", more_is_better=False),
)
_numbers = itertools.count()


class Asker(asyncio.Protocol):
    """A connection that asks ApiVersions, again and again while `asking`."""

    def __init__(self) -> None:
        self.answers = 0
        self.asking = False
        self.first = asyncio.get_running_loop().create_future()
        self._answer_bytes = 0
        self._received = 0
        self._request = frame(API_VERSIONS, 0, 1, b"")
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask once, as every client does."""
        # uvloop's transports are no subclass of asyncio's, only of the same shape.
        self.transport = cast("asyncio.Transport", transport)
        self.ask()

    def data_received(self, data: bytes) -> None:
        """Count answers: they all have the size of the first."""
        if not self._answer_bytes:
            self._answer_bytes = int.from_bytes(data[:4], "big") + 4
        self._received += len(data)
        if self._received < self._answer_bytes:
            return
        self._received -= self._answer_bytes
        self.answers += 1
        if not self.first.done():
            self.first.set_result(None)
        if self.asking:
            self.ask()

    def ask(self) -> None:
        """Send one request."""
        assert self.transport is not None, "connected first"
        self.transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail whoever waits for the first answer."""
        if not self.first.done():
            self.first.set_exception(exc or ConnectionError("closed before the first answer"))


def run(arena: Arena) -> None:
    """Measure every number of connections in turns."""
    with arena.contest(warm_up) as contestants:
        for number in range(arena.scale.rounds):
            for connections in arena.scale.connections:
                for contestant in contestants:
                    values = run_loop(measure(contestant.broker, connections, arena.scale.seconds))
                    cell = f"{connections:,} connections"
                    arena.recorder.add(Sample(NAME, cell, contestant.name, number, values))


def warm_up(broker: ProcessBroker, seconds: float) -> float:
    """Do what is measured with a few connections, for half of the time each."""
    seconds = min(seconds, WARM_UP_RUN_S)
    run_loop(measure(broker, ACTIVE, seconds / 2))
    return seconds


async def measure(broker: ProcessBroker, connections: int, seconds: float) -> dict[str, float]:
    """Open the connections, use all, then leave them idle while a few produce."""
    loop = asyncio.get_running_loop()
    rss_before = broker.rss_bytes()
    started = time.perf_counter()

    async def connect() -> Asker:
        _, asker = await loop.create_connection(Asker, HOST, broker.port)
        await asker.first
        return asker

    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        askers = await asyncio.gather(*(connect() for _ in range(connections)))
    values = {"connects_s": connections / (time.perf_counter() - started)}
    values["kb_per_connection"] = (broker.rss_bytes() - rss_before) / connections / 1e3
    values |= await ask_all(broker, askers, seconds)
    values |= await produce_beside(broker, seconds)
    for asker in askers:
        assert asker.transport is not None, "connected first"
        asker.transport.close()
    await asyncio.sleep(0)
    return values


async def ask_all(broker: ProcessBroker, askers: list[Asker], seconds: float) -> dict[str, float]:
    """Let every connection ask in a closed loop for some seconds."""
    before = sum(asker.answers for asker in askers)
    cpu_before, wall_before = broker.cpu_seconds(), time.perf_counter()
    for asker in askers:
        asker.asking = True
        asker.ask()
    await asyncio.sleep(seconds)
    answers = sum(asker.answers for asker in askers) - before
    wall_seconds = time.perf_counter() - wall_before
    cpu_seconds = broker.cpu_seconds() - cpu_before
    for asker in askers:
        asker.asking = False
    return {
        "requests_s": answers / wall_seconds,
        "requests_per_cpu_s": answers / max(cpu_seconds, 0.01),
    }


async def produce_beside(broker: ProcessBroker, seconds: float) -> dict[str, float]:
    """Produce one record at a time on a few connections; the others stay open."""
    topic = f"connections-{next(_numbers)}"
    with Client(broker.port) as client:
        client.create_topic(topic, ACTIVE)
    record = make_batches(1_024, 1)[0]
    latencies: list[float] = []

    async def produce(partition: int) -> None:
        pipe = await Pipe.connect(broker.port)
        body = produce_body(topic, [(partition, record)])
        until = time.perf_counter() + seconds
        while (started := time.perf_counter()) < until:
            check_produced(await pipe.call(PRODUCE, PRODUCE_VERSION, body))
            latencies.append(time.perf_counter() - started)
        await pipe.close()

    async with asyncio.TaskGroup() as group:
        for partition in range(ACTIVE):
            group.create_task(produce(partition))
    with Client(broker.port) as client:
        client.delete_topic(topic)
    p50, p99, _ = percentiles_ms(latencies)
    return {"active_p50_ms": p50, "active_p99_ms": p99}
