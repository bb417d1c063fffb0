"""B1: what a produced megabyte costs the broker, and how fast the clock saw it.

16 partitions, acks=all, one or two librdkafka producers in their own processes. The batch bytes
that librdkafka reports are recorded with every run, so that a cell's name can be checked.
"""

import itertools

import msgspec

from bench.arena import Arena, Contestant
from bench.broker import ProcessBroker
from bench.clients import Effort, run_jobs
from bench.raw import Client
from bench.results import Metric, Sample
from bench.worker import ProduceJob

NAME = "b1"
PARTITIONS = 16
RECORD_BYTES = (1_024, 100)
# (bytes of a batch, linger): the linger is long enough that size, not time, closes the batch.
BATCHES = ((1_000_000, 100.0), (16_384, 20.0), (1_000, 5.0))
TARGET_CELLS = {(1_024, 1_000_000), (100, 16_384), (100, 1_000)}
METRICS = (
    Metric("mb_per_cpu_s", "MB/broker-cpu-s"),
    Metric("wall_mb_s", "MB/s"),
    Metric("batch_bytes", "B"),
)
_numbers = itertools.count()


def run(arena: Arena) -> None:
    """Measure every cell in turns."""
    cells = [
        (record_bytes, batch_bytes, linger_ms, clients)
        for record_bytes in RECORD_BYTES
        for batch_bytes, linger_ms in BATCHES
        for clients in (1, 2)
        if not arena.scale.quick or (clients == 2 and (record_bytes, batch_bytes) in TARGET_CELLS)
    ]
    with arena.contest(warm_up) as contestants:
        for number in range(arena.scale.rounds):
            for record_bytes, batch_bytes, linger_ms, clients in cells:
                job = ProduceJob(
                    bootstrap="",
                    topic="",
                    partitions=PARTITIONS,
                    record_bytes=record_bytes,
                    batch_bytes=batch_bytes,
                    linger_ms=linger_ms,
                    seconds=arena.scale.seconds,
                    bytes_max=arena.scale.bytes_max // clients,
                )
                cell = f"{record_bytes} B, {batch_bytes:,} B batches, {clients} clients"
                for contestant in contestants:
                    arena.recorder.add(measure(contestant, cell, number, [job] * clients))


def measure(contestant: Contestant, cell: str, number: int, jobs: list[ProduceJob]) -> Sample:
    """Run one cell against one broker."""
    contestant.make_room()
    effort = produce(contestant.broker, jobs)
    sizes = [outcome.batch_bytes for outcome in effort.outcomes]
    values = {
        "mb_per_cpu_s": effort.megabytes_per_cpu_second(),
        "wall_mb_s": effort.megabytes_per_second(),
        "batch_bytes": sum(sizes) / len(sizes),
        "cpu_s": effort.cpu_seconds,
        "failures": float(effort.failures()),
    }
    return Sample(NAME, cell, contestant.name, number, values)


def produce(broker: ProcessBroker, jobs: list[ProduceJob]) -> Effort:
    """Produce into a fresh topic and delete it again."""
    topic = f"produce-{next(_numbers)}"
    with Client(broker.port) as client:
        client.create_topic(topic, jobs[0].partitions)
    placed = [
        msgspec.structs.replace(job, bootstrap=broker.bootstrap, topic=topic, seed=seed)
        for seed, job in enumerate(jobs)
    ]
    effort = run_jobs(broker, placed)
    with Client(broker.port) as client:
        client.delete_topic(topic)
    return effort


def warm_up(broker: ProcessBroker, seconds: float) -> None:
    """Produce large and small batches until a just-in-time compiler has seen both."""
    for batch_bytes, linger_ms in BATCHES:
        produce(
            broker,
            [
                ProduceJob(
                    bootstrap="",
                    topic="",
                    partitions=PARTITIONS,
                    record_bytes=RECORD_BYTES[0] if batch_bytes > 100_000 else RECORD_BYTES[1],
                    batch_bytes=batch_bytes,
                    linger_ms=linger_ms,
                    seconds=seconds / len(BATCHES),
                    bytes_max=1 << 30,
                )
            ],
        )
