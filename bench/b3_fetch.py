"""B3: what a served megabyte costs the broker, with 1 and 10 consumers.

`read`: consumers by assignment read what was just written, again and again; nothing is produced
meanwhile, so the CPU is the fetch path's alone. `tail`: a paced producer writes and all consumers
follow; the CPU is that of both, and `delivered` says which share of what was written the consumers
saw in time. Every cell has its own brokers, warmed by its own load.
"""

import itertools
from dataclasses import dataclass

from bench.arena import Arena, Contestant
from bench.broker import ProcessBroker
from bench.clients import CPU_SECONDS_MIN, Effort, run_jobs
from bench.jobs import ConsumeJob, Job, ProduceJob
from bench.raw import Client
from bench.results import Metric, Sample

NAME = "b3"
PARTITIONS = 16
RECORD_BYTES = (1_024, 100)
FAN_OUT = (1, 10)
READ_BYTES = 64 << 20
"""Below the 96 MiB of the broker's tail cache: this is about the tail, not about catch-up."""
FILL_TIMEOUT_S = 120.0
METRICS = (
    Metric("mb_per_cpu_s", "MB/broker-cpu-s"),
    Metric("wall_mb_s", "MB/s"),
    Metric("delivered", "of written"),
    Metric("rss_mb", "MB", more_is_better=False),
)
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class FetchCell:
    """So many consumers of a topic of such records."""

    record_bytes: int
    consumers: int


def run(arena: Arena) -> None:
    """Measure cell by cell, the arms in turns."""
    sizes = RECORD_BYTES[:1] if arena.scale.quick else RECORD_BYTES
    cells = [FetchCell(size, consumers) for size in sizes for consumers in FAN_OUT]
    for cell in cells:
        if arena.wants(name := f"read {cell.record_bytes} B, {cell.consumers} consumers"):
            reads(arena, name, cell)
    for cell in cells:
        rate = rate_bytes_s(cell) / 1e6
        name = f"tail {cell.record_bytes} B at {rate:.0f} MB/s, {cell.consumers} consumers"
        if arena.wants(name):
            tails(arena, name, cell)


def reads(arena: Arena, name: str, cell: FetchCell) -> None:
    """Read one topic again and again with both brokers in turns; it is filled once in each."""
    filled: dict[int, tuple[str, int]] = {}

    def read(broker: ProcessBroker, seconds: float) -> Effort:
        if broker.pid not in filled:
            topic = f"read-{next(_numbers)}"
            with Client(broker.port) as client:
                client.create_topic(topic, PARTITIONS)
            filled[broker.pid] = topic, fill(broker, topic, cell.record_bytes, READ_BYTES)
        topic, records = filled[broker.pid]
        at = (broker.bootstrap, topic, PARTITIONS)
        return run_jobs(broker, [ConsumeJob(*at, cell.consumers, records, seconds)])

    with arena.contest(lambda broker, left: read(broker, left).wall_seconds) as contestants:
        for number in range(arena.scale.rounds):
            for contestant in contestants:
                effort = read(contestant.broker, arena.scale.seconds)
                record(arena, name, contestant, number, effort, {})


def fill(broker: ProcessBroker, topic: str, record_bytes: int, bytes_max: int) -> int:
    """Write a topic of some bytes; return its records."""
    job = ProduceJob(
        bootstrap=broker.bootstrap,
        topic=topic,
        partitions=PARTITIONS,
        record_bytes=record_bytes,
        batch_bytes=1_000_000 if record_bytes > 1_000 else 100_000,
        linger_ms=100.0,
        seconds=FILL_TIMEOUT_S,
        bytes_max=bytes_max,
    )
    effort = run_jobs(broker, [job])
    assert not effort.failures(), "a topic to read from must be complete"
    return effort.outcomes[0].records


def rate_bytes_s(cell: FetchCell) -> float:
    """One client core has to keep up with ten consumers of everything that is written."""
    return (20 if cell.record_bytes > 1_000 else 5) * 1e6


def tails(arena: Arena, name: str, cell: FetchCell) -> None:
    """Follow a paced producer with several consumers, both brokers in turns."""
    seconds = max(arena.scale.seconds, 1.5)

    def warm_up(broker: ProcessBroker, left: float) -> float:
        return tail(broker, cell, min(left, seconds), arena.scale.bytes_max).wall_seconds

    with arena.contest(warm_up) as contestants:
        for number in range(arena.scale.rounds):
            for contestant in contestants:
                contestant.make_room()
                effort = tail(contestant.broker, cell, seconds, arena.scale.bytes_max)
                served, written = (outcome.payload_bytes for outcome in effort.outcomes)
                delivered = served / (written * cell.consumers)
                record(arena, name, contestant, number, effort, {"delivered": delivered})


def tail(broker: ProcessBroker, cell: FetchCell, seconds: float, bytes_max: int) -> Effort:
    """Write for some seconds into a fresh topic, and follow a second longer."""
    topic = f"tail-{next(_numbers)}"
    jobs: list[Job] = [
        ConsumeJob(broker.bootstrap, topic, PARTITIONS, cell.consumers, seconds=seconds + 1.0),
        ProduceJob(
            bootstrap=broker.bootstrap,
            topic=topic,
            partitions=PARTITIONS,
            record_bytes=cell.record_bytes,
            batch_bytes=1_000_000,
            linger_ms=5.0,
            seconds=seconds,
            bytes_max=bytes_max,
            rate_bytes_s=rate_bytes_s(cell),
        ),
    ]
    with Client(broker.port) as client:
        client.create_topic(topic, PARTITIONS)
        effort = run_jobs(broker, jobs)
        client.delete_topic(topic)
    return effort


def record(
    arena: Arena,
    cell: str,
    contestant: Contestant,
    number: int,
    effort: Effort,
    more: dict[str, float],
) -> None:
    """Keep what was served; what was written meanwhile is not counted."""
    served = effort.outcomes[0].payload_bytes / 1e6
    values = {
        "mb_per_cpu_s": served / max(effort.cpu_seconds, CPU_SECONDS_MIN),
        "wall_mb_s": served / effort.wall_seconds,
        "rss_mb": effort.rss_bytes / 1e6,
        "cpu_s": effort.cpu_seconds,
        "failures": float(effort.failures()),
        **more,
    }
    arena.recorder.add(Sample(NAME, cell, contestant.name, number, values))
