"""B3: what a served megabyte costs the broker, with 1, 3 and 10 consumers.

`read`: consumers by assignment drain what was just written; nothing is produced meanwhile, so the
CPU is the fetch path's alone. `tail`: a paced producer writes and all consumers follow; the CPU is
that of both, and `delivered` says which share of what was written the consumers saw in time.
"""

import itertools
import time

from bench import b1_produce
from bench.arena import Arena, Contestant
from bench.broker import ProcessBroker
from bench.clients import run_jobs
from bench.raw import Client
from bench.results import Metric, Sample
from bench.worker import ConsumeJob, Job, ProduceJob

NAME = "b3"
PARTITIONS = 16
RECORD_BYTES = (1_024, 100)
FAN_OUT = (1, 3, 10)
FAN_OUT_QUICK = (1, 10)
METRICS = (
    Metric("mb_per_cpu_s", "MB/broker-cpu-s"),
    Metric("wall_mb_s", "MB/s"),
    Metric("delivered", "of written"),
)
_numbers = itertools.count()


def run(arena: Arena) -> None:
    """Measure reads and tails in turns."""
    sizes = RECORD_BYTES[:1] if arena.scale.quick else RECORD_BYTES
    with arena.contest(warm_up) as contestants:
        for number in range(arena.scale.rounds):
            for record_bytes in sizes:
                for contestant in contestants:
                    contestant.make_room()
                    read(arena, contestant, record_bytes, number)
                for consumers in fan_out(arena):
                    for contestant in contestants:
                        tail(arena, contestant, record_bytes, consumers, number)


def fan_out(arena: Arena) -> tuple[int, ...]:
    """Return the numbers of consumers to try."""
    return FAN_OUT_QUICK if arena.scale.quick else FAN_OUT


def warm_up(broker: ProcessBroker, seconds: float) -> None:
    """Produce, then read what was produced again and again."""
    b1_produce.warm_up(broker, seconds / 2)
    topic = f"warm-{next(_numbers)}"
    with Client(broker.port) as client:
        client.create_topic(topic, PARTITIONS)
        records = fill(broker, topic, RECORD_BYTES[0], 32 << 20)
        until = time.monotonic() + seconds / 2
        while time.monotonic() < until:
            run_jobs(broker, [ConsumeJob(broker.bootstrap, topic, PARTITIONS, 10, records)])
        client.delete_topic(topic)


def fill(broker: ProcessBroker, topic: str, record_bytes: int, bytes_max: int) -> int:
    """Write a topic of some bytes; return its records."""
    job = ProduceJob(
        bootstrap=broker.bootstrap,
        topic=topic,
        partitions=PARTITIONS,
        record_bytes=record_bytes,
        batch_bytes=1_000_000 if record_bytes > 1_000 else 100_000,
        linger_ms=100.0,
        seconds=120.0,
        bytes_max=bytes_max,
    )
    effort = run_jobs(broker, [job])
    assert not effort.failures(), "a topic to read from must be complete"
    return effort.outcomes[0].records


def read(arena: Arena, contestant: Contestant, record_bytes: int, number: int) -> None:
    """Drain one topic with more and more consumers; the first pass warms the path."""
    topic = f"read-{next(_numbers)}"
    # Below the 256 MiB of the broker's tail cache: this is about the tail, not about catch-up.
    bytes_max = (96 << 20) if arena.scale.quick else (192 << 20)
    with Client(contestant.broker.port) as client:
        client.create_topic(topic, PARTITIONS)
        records = fill(contestant.broker, topic, record_bytes, bytes_max)
        for position, consumers in enumerate((1, *fan_out(arena))):
            job = ConsumeJob(contestant.broker.bootstrap, topic, PARTITIONS, consumers, records)
            effort = run_jobs(contestant.broker, [job])
            if position:
                values = {
                    "mb_per_cpu_s": effort.megabytes_per_cpu_second(),
                    "wall_mb_s": effort.megabytes_per_second(),
                    "cpu_s": effort.cpu_seconds,
                    "failures": float(effort.failures()),
                }
                cell = f"read {record_bytes} B, {consumers} consumers"
                arena.recorder.add(Sample(NAME, cell, contestant.name, number, values))
        client.delete_topic(topic)


def tail(
    arena: Arena, contestant: Contestant, record_bytes: int, consumers: int, number: int
) -> None:
    """Follow a paced producer with several consumers."""
    topic = f"tail-{next(_numbers)}"
    # One client core has to keep up with ten consumers of everything that is written.
    rate_bytes_s = (20 if record_bytes > 1_000 else 5) * 1e6
    seconds = max(arena.scale.seconds, 1.5)
    broker = contestant.broker
    with Client(broker.port) as client:
        client.create_topic(topic, PARTITIONS)
        jobs: list[Job] = [
            ConsumeJob(broker.bootstrap, topic, PARTITIONS, consumers, seconds=seconds + 1.0),
            ProduceJob(
                bootstrap=broker.bootstrap,
                topic=topic,
                partitions=PARTITIONS,
                record_bytes=record_bytes,
                batch_bytes=1_000_000,
                linger_ms=5.0,
                seconds=seconds,
                bytes_max=1 << 40,
                rate_bytes_s=rate_bytes_s,
            ),
        ]
        effort = run_jobs(broker, jobs)
        client.delete_topic(topic)
    served, written = (outcome.payload_bytes for outcome in effort.outcomes)
    values = {
        "mb_per_cpu_s": served / 1e6 / max(effort.cpu_seconds, 0.01),
        "wall_mb_s": served / 1e6 / effort.wall_seconds,
        "delivered": served / (written * consumers),
        "cpu_s": effort.cpu_seconds,
    }
    cell = f"tail {record_bytes} B at {rate_bytes_s / 1e6:.0f} MB/s, {consumers} consumers"
    arena.recorder.add(Sample(NAME, cell, contestant.name, number, values))
