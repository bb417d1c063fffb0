"""B9: does a broker keep its speed when the same load spreads over more partitions?

A raw connection sends one 16 KiB batch per request (as librdkafka does) to the partitions in turn,
with the same bytes in flight in every cell, so that only the number of partitions differs; a run of
160 MiB comes to each of 10,000 partitions. `retention` is the throughput over that of one partition
in the same round.
"""

import itertools
import time

from bench.arena import Arena
from bench.broker import ProcessBroker
from bench.clients import CPU_SECONDS_MIN
from bench.pipeline import make_batches, run_loop, saturate
from bench.raw import Client
from bench.results import Metric, Sample

NAME = "b9"
RECORD_BYTES = 1_024
BATCH_RECORDS = 16
REQUEST_BYTES = RECORD_BYTES * BATCH_RECORDS
METADATA_CALLS = 5
WARM_PARTITIONS = 16
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
    requests_max = arena.scale.bytes_max // REQUEST_BYTES

    def warm_up(broker: ProcessBroker, left: float) -> float:
        """Do with some partitions what is measured."""
        seconds = min(left, arena.scale.seconds)
        started = time.perf_counter()
        measure(broker, WARM_PARTITIONS, seconds, requests_max)
        return time.perf_counter() - started

    with arena.contest(warm_up) as contestants:
        for number in range(arena.scale.rounds):
            for partitions in arena.scale.partitions:
                for contestant in contestants:
                    contestant.make_room()
                    values = measure(
                        contestant.broker, partitions, arena.scale.seconds, requests_max
                    )
                    speed = (values["mb_s"], values["mb_per_cpu_s"])
                    first = base.setdefault((contestant.name, number), speed)
                    values["retention"] = speed[0] / first[0]
                    values["cpu_retention"] = speed[1] / first[1]
                    cell = f"{partitions:,} partitions"
                    arena.recorder.add(Sample(NAME, cell, contestant.name, number, values))


def measure(
    broker: ProcessBroker, partitions: int, seconds: float, requests_max: int
) -> dict[str, float]:
    """Create a topic, ask for it, fill it, delete it."""
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
            *(broker.port, topic, range(partitions), make_batches(100, 1)), requests_max=partitions
        )
        run_loop(touch)
        broker.settle()
        cpu_before, wall_before = broker.cpu_seconds(), time.perf_counter()
        work = saturate(
            *(broker.port, topic, range(partitions), prepared),
            seconds=seconds,
            requests_max=requests_max,
        )
        requests = run_loop(work)
        wall_seconds = time.perf_counter() - wall_before
        cpu_seconds = broker.cpu_seconds() - cpu_before
        megabytes = requests * REQUEST_BYTES / 1e6
        values["mb_s"] = megabytes / wall_seconds
        values["mb_per_cpu_s"] = megabytes / max(cpu_seconds, CPU_SECONDS_MIN)
        if partitions >= 1_000:
            values["rss_kb_per_partition"] = (broker.rss_bytes() - rss_before) / partitions / 1e3
        client.delete_topic(topic)
    return values
