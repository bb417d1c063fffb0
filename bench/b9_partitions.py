"""B9: does a broker keep its speed when the same load spreads over more partitions?

Raw connections send one 64 KiB batch per request (as librdkafka does) to the partitions in turn,
with the same bytes in flight in every cell, so that only the number of partitions differs.
`retention` is the throughput over that of one partition in the same round.
"""

import itertools
import time

from bench import b1_produce
from bench.arena import Arena, Contestant
from bench.broker import ProcessBroker
from bench.pipeline import make_batches, run_loop, saturate
from bench.raw import Client
from bench.results import Metric, Sample

NAME = "b9"
RECORD_BYTES = 1_024
BATCH_RECORDS = 64
METADATA_CALLS = 5
METRICS = (
    Metric("retention", "of one partition"),
    Metric("cpu_retention", "of one partition"),
    Metric("mb_s", "MB/s"),
    Metric("mb_per_cpu_s", "MB/broker-cpu-s"),
    Metric("create_s", "s", more_is_better=False),
    Metric("metadata_ms", "ms", more_is_better=False),
    Metric("rss_kb_per_partition", "kB", more_is_better=False),
)
_numbers = itertools.count()


def run(arena: Arena) -> None:
    """Measure every number of partitions in turns."""
    base: dict[tuple[str, int], tuple[float, float]] = {}
    with arena.contest(warm_up) as contestants:
        for number in range(arena.scale.rounds):
            for partitions in arena.scale.partitions:
                for contestant in contestants:
                    contestant.make_room()
                    values = measure(contestant, partitions, arena.scale.seconds)
                    speed = (values["mb_s"], values["mb_per_cpu_s"])
                    first = base.setdefault((contestant.name, number), speed)
                    values["retention"] = speed[0] / first[0]
                    values["cpu_retention"] = speed[1] / first[1]
                    cell = f"{partitions:,} partitions"
                    arena.recorder.add(Sample(NAME, cell, contestant.name, number, values))


def warm_up(broker: ProcessBroker, seconds: float) -> None:
    """Produce with librdkafka, then with the very requests that are measured."""
    b1_produce.warm_up(broker, seconds / 2)
    topic = f"warm-{next(_numbers)}"
    with Client(broker.port) as client:
        client.create_topic(topic, 16)
        prepared = make_batches(RECORD_BYTES, BATCH_RECORDS)
        run_loop(saturate(broker.port, topic, range(16), prepared, seconds=seconds / 2))
        client.delete_topic(topic)


def measure(contestant: Contestant, partitions: int, seconds: float) -> dict[str, float]:
    """Create a topic, ask for it, fill it, delete it."""
    broker = contestant.broker
    topic = f"partitions-{next(_numbers)}"
    values: dict[str, float] = {}
    with Client(broker.port) as client:
        rss_before = broker.rss_bytes()
        started = time.perf_counter()
        client.create_topic(topic, partitions)
        values["create_s"] = time.perf_counter() - started
        durations = []
        for _ in range(METADATA_CALLS):
            started = time.perf_counter()
            client.metadata(topic)
            durations.append(time.perf_counter() - started)
        values["metadata_ms"] = sorted(durations)[METADATA_CALLS // 2] * 1e3
        prepared = make_batches(RECORD_BYTES, BATCH_RECORDS)
        # Every partition is touched before the clock starts: first use opens files.
        touch = saturate(
            broker.port, topic, range(partitions), make_batches(100, 1), requests_min=partitions
        )
        run_loop(touch)
        cpu_before, wall_before = broker.cpu_seconds(), time.perf_counter()
        work = saturate(broker.port, topic, range(partitions), prepared, seconds=seconds)
        requests = run_loop(work)
        wall_seconds = time.perf_counter() - wall_before
        cpu_seconds = broker.cpu_seconds() - cpu_before
        megabytes = requests * RECORD_BYTES * BATCH_RECORDS / 1e6
        values["mb_s"] = megabytes / wall_seconds
        values["mb_per_cpu_s"] = megabytes / max(cpu_seconds, 0.01)
        if partitions >= 1_000:
            values["rss_kb_per_partition"] = (broker.rss_bytes() - rss_before) / partitions / 1e3
        client.delete_topic(topic)
    return values
