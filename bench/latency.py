"""Acknowledgement latency at 10 MB/s offered, on memory and on a disk.

`raw`: requests of one 16 KiB batch at a fixed rate over four connections, from the write to the
answer; no answer delays the next request. `librdkafka`: one producer with its default settings,
from `produce()` to the delivery report, its own linger included. On tmpfs an fsync is free, so a
broker that syncs is only judged fairly on the disk as well.
"""

import asyncio
import itertools
from collections.abc import Callable

from bench import b1_produce
from bench.arena import Arena, Contestant
from bench.clients import run_jobs
from bench.pipeline import make_batches, offer, run_loop
from bench.raw import Client, produce_body
from bench.results import Metric, Sample, percentiles_ms
from bench.worker import ProduceJob

NAME = "latency"
PARTITIONS = 16
CONNECTIONS = 4
RATE_BYTES_S = 10e6
RECORD_BYTES = 1_024
BATCH_RECORDS = 16
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
        with arena.contest(b1_produce.warm_up, on_disk=on_disk) as contestants:
            for number in range(arena.scale.rounds):
                for kind, measure in (("raw", raw), ("librdkafka", librdkafka)):
                    for contestant in contestants:
                        p50, p99, p999 = measure(contestant, max(arena.scale.seconds, 2.0))
                        values = {"p50_ms": p50, "p99_ms": p99, "p999_ms": p999}
                        cell = f"{kind}, {place}"
                        arena.recorder.add(Sample(NAME, cell, contestant.name, number, values))


def raw(contestant: Contestant, seconds: float) -> tuple[float, float, float]:
    """Offer requests at a fixed rate and time each answer."""
    topic = fresh_topic(contestant)
    prepared = make_batches(RECORD_BYTES, BATCH_RECORDS)
    rate = RATE_BYTES_S / (RECORD_BYTES * BATCH_RECORDS) / CONNECTIONS
    port = contestant.broker.port

    def bodies(connection: int) -> Callable[[int], bytes]:
        def body(index: int) -> bytes:
            partition = (index * CONNECTIONS + connection) % PARTITIONS
            return produce_body(topic, [(partition, prepared[index % len(prepared)])])

        return body

    async def all_connections() -> list[float]:
        offers = (offer(port, bodies(each), rate, seconds) for each in range(CONNECTIONS))
        return [latency for latencies in await asyncio.gather(*offers) for latency in latencies]

    return percentiles_ms(run_loop(all_connections()))


def librdkafka(contestant: Contestant, seconds: float) -> tuple[float, float, float]:
    """Produce at a fixed rate and take librdkafka's own measure of each record."""
    job = ProduceJob(
        bootstrap=contestant.broker.bootstrap,
        topic=fresh_topic(contestant),
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
    return run_jobs(contestant.broker, [job]).outcomes[0].latencies_ms


def fresh_topic(contestant: Contestant) -> str:
    """Create a topic that nothing else writes to."""
    topic = f"latency-{next(_numbers)}"
    with Client(contestant.broker.port) as client:
        client.create_topic(topic, PARTITIONS)
    return topic
