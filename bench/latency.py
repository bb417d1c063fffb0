"""Acknowledgement latency at 10 MB/s offered, on memory and on a disk.

`raw`: requests of one 16 KiB batch at a fixed rate over four connections, from the write to the
answer; no answer delays the next request. `librdkafka`: one producer with its default settings,
from `produce()` to the delivery report, its own linger included. On tmpfs an fsync is free, so a
broker that syncs is only judged fairly on the disk as well.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.arena import Arena
from bench.broker import ProcessBroker
from bench.clients import run_jobs
from bench.jobs import ProduceJob
from bench.pipeline import make_batches, offer, run_loop
from bench.raw import Client, produce_body
from bench.results import Metric, Sample, percentiles_ms

NAME = "latency"
PARTITIONS = 16
CONNECTIONS = 4
RATE_BYTES_S = 10e6
RECORD_BYTES = 1_024
BATCH_RECORDS = 16
WARM_UP_RUN_S = 5.0
METRICS = (
    Metric("p50_ms", "ms", more_is_better=False),
    Metric("p99_ms", "ms", more_is_better=False),
    Metric("p999_ms", "ms", more_is_better=False),
)
_numbers = itertools.count()


def run(arena: Arena) -> None:
    """Measure on both kinds of storage, in turns."""
    for on_disk in (False, True):
        place = "disk" if on_disk else "memory"
        with arena.contest(warm_up, on_disk=on_disk) as contestants:
            for number in range(arena.scale.rounds):
                for kind, measure in (("raw", raw), ("librdkafka", librdkafka)):
                    for contestant in contestants:
                        contestant.make_room()
                        seconds = max(arena.scale.seconds, 2.0)
                        p50, p99, p999 = measure(contestant.broker, seconds)
                        values = {"p50_ms": p50, "p99_ms": p99, "p999_ms": p999}
                        cell = f"{kind}, {place}"
                        arena.recorder.add(Sample(NAME, cell, contestant.name, number, values))


def warm_up(broker: ProcessBroker, seconds: float) -> float:
    """Offer both kinds of load for a while."""
    seconds = min(seconds, WARM_UP_RUN_S)
    for measure in (raw, librdkafka):
        measure(broker, seconds / 2)
    return seconds


def raw(broker: ProcessBroker, seconds: float) -> tuple[float, float, float]:
    """Offer requests at a fixed rate and time each answer."""
    prepared = make_batches(RECORD_BYTES, BATCH_RECORDS)
    rate = RATE_BYTES_S / (RECORD_BYTES * BATCH_RECORDS) / CONNECTIONS

    def bodies(topic: str, connection: int) -> Callable[[int], bytes]:
        def body(index: int) -> bytes:
            partition = (index * CONNECTIONS + connection) % PARTITIONS
            return produce_body(topic, [(partition, prepared[index % len(prepared)])])

        return body

    async def all_connections(topic: str) -> list[float]:
        offers = (
            offer(broker.port, bodies(topic, each), rate, seconds) for each in range(CONNECTIONS)
        )
        return [latency for latencies in await asyncio.gather(*offers) for latency in latencies]

    with fresh_topic(broker) as topic:
        return percentiles_ms(run_loop(all_connections(topic)))


def librdkafka(broker: ProcessBroker, seconds: float) -> tuple[float, float, float]:
    """Produce at a fixed rate and take librdkafka's own measure of each record."""
    with fresh_topic(broker) as topic:
        job = ProduceJob(
            bootstrap=broker.bootstrap,
            topic=topic,
            partitions=PARTITIONS,
            record_bytes=RECORD_BYTES,
            batch_bytes=1_000_000,
            linger_ms=5.0,
            seconds=seconds,
            bytes_max=1 << 40,
            rate_bytes_s=RATE_BYTES_S,
            with_latency=True,
            chunk_records=10,
        )
        return run_jobs(broker, [job]).outcomes[0].latencies_ms


@contextmanager
def fresh_topic(broker: ProcessBroker) -> Iterator[str]:
    """Lend a topic that nothing else writes to."""
    topic = f"latency-{next(_numbers)}"
    with Client(broker.port) as client:
        client.create_topic(topic, PARTITIONS)
    yield topic
    with Client(broker.port) as client:
        client.delete_topic(topic)
