"""Who produces what in B1: a cell is a client, the size of its records and of its batches.

Rules: 16 partitions, acks=all, nothing compressed, no keys. A client that is not on this machine is
left out, and its absence has a reason. `many`: what these clients send in one request is for many
partitions, where librdkafka sends a request for each.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

import msgspec

from bench.arena import Scale
from bench.broker import ProcessBroker
from bench.clients import Effort, run_jobs
from bench.franz_go import GoAbsentError, franz_go_program
from bench.jobs import FranzGoJob, JavaJob, ProduceJob, SaturateJob
from bench.peer import PERFORMANCE_TOOL, PeerAbsentError, cached_versions, find_peer
from bench.raw import Client

PARTITIONS = 16
CLIENTS = 2
WARM_UP_RUNS = 2
"""How many runs' bytes one run of a warm-up may write: starting clients takes longer than a run."""
JAVA_BYTES_S = 16e6
"""Kafka's tool is told a number of records and no time; about so fast it is on one core."""
_numbers = itertools.count()

Producing = ProduceJob | SaturateJob | JavaJob | FranzGoJob


@dataclass(frozen=True, slots=True)
class Shape:
    """Records and batches; the linger is so long that size, not time, closes a batch."""

    name: str
    record_bytes: int
    batch_bytes: int
    linger_ms: float
    in_flight: int
    """Requests of the socket client."""


LARGE = Shape("1 KiB, 1 MB", 1_024, 1_000_000, 100.0, 8)
MIDDLE = Shape("100 B, 16 KiB", 100, 16_384, 20.0, 256)
SMALL = Shape("100 B, 1,000 B", 100, 1_000, 5.0, 2_048)


class ProducerSettings(TypedDict):
    """What every producer is told, whatever else its own job says."""

    partitions: int
    record_bytes: int
    batch_bytes: int
    linger_ms: float
    seconds: float
    bytes_max: int


def told(scale: Scale, shape: Shape, bytes_max: int) -> ProducerSettings:
    """Return the settings of a producer that writes records of this shape."""
    return ProducerSettings(
        partitions=PARTITIONS,
        record_bytes=shape.record_bytes,
        batch_bytes=shape.batch_bytes,
        linger_ms=shape.linger_ms,
        seconds=scale.seconds,
        bytes_max=bytes_max,
    )


@dataclass(frozen=True, slots=True)
class ProduceCell:
    """One row of the table: the jobs of its client processes."""

    name: str
    jobs: tuple[Producing, ...]

    def run(self, broker: ProcessBroker) -> Effort:
        """Produce into a fresh topic and delete it again."""
        return produce(broker, self.jobs)

    def warm_up(self, broker: ProcessBroker, seconds: float) -> float:
        """Produce for a while as the cell does."""
        jobs = [
            msgspec.structs.replace(job, seconds=seconds, bytes_max=job.bytes_max * WARM_UP_RUNS)
            for job in self.jobs
        ]
        return produce(broker, jobs).wall_seconds


def produce(broker: ProcessBroker, jobs: Sequence[Producing]) -> Effort:
    """Produce into a fresh topic with these clients, and delete it again."""
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


def produce_cells(scale: Scale) -> list[ProduceCell]:
    """Return the cells whose clients need nothing but Python."""
    shapes = (LARGE, MIDDLE, SMALL)
    return [
        *(ProduceCell(f"librdkafka, {shape.name}", librdkafka(scale, shape)) for shape in shapes),
        *(ProduceCell(f"socket, {shape.name}", sockets(scale, shape, 1)) for shape in shapes),
        ProduceCell(f"many: socket, 16 x {SMALL.name}", sockets(scale, SMALL, PARTITIONS)),
    ]


def librdkafka(scale: Scale, shape: Shape) -> tuple[Producing, ...]:
    """Two producers, each with half of the bytes."""
    return (ProduceJob(**told(scale, shape, scale.bytes_max // CLIENTS)),) * CLIENTS


def sockets(scale: Scale, shape: Shape, request_partitions: int) -> tuple[Producing, ...]:
    """One process with two connections; as many batches under way however they are bundled."""
    job = SaturateJob(
        partitions=PARTITIONS,
        record_bytes=shape.record_bytes,
        batch_bytes=shape.batch_bytes,
        seconds=scale.seconds,
        bytes_max=scale.bytes_max,
        in_flight=shape.in_flight // request_partitions,
        request_partitions=request_partitions,
    )
    return (job,)


def java_cells(scale: Scale) -> list[ProduceCell]:
    """Return the cells of Kafka's own producer; raise PeerAbsentError where there are no jars."""
    if not cached_versions():
        raise PeerAbsentError("no jars of Apache Kafka in the cache")
    command = tuple(find_peer().command(PERFORMANCE_TOOL, heap="512m"))
    bytes_max = min(scale.bytes_max, int(JAVA_BYTES_S * scale.seconds))
    return many_cells(
        "Java", lambda shape: JavaJob(**told(scale, shape, bytes_max), command=command)
    )


def franz_go_cells(scale: Scale) -> list[ProduceCell]:
    """Return the cells of franz-go; raise GoAbsentError where it cannot be built."""
    program = str(franz_go_program())
    return many_cells(
        "franz-go",
        lambda shape: FranzGoJob(**told(scale, shape, scale.bytes_max), program=program),
    )


def many_cells(client: str, job: Callable[[Shape], Producing]) -> list[ProduceCell]:
    """Return the cells of one process of a client that sends batches of many partitions at once."""
    return [
        ProduceCell(f"many: {client}, {shape.name}", (job(shape),)) for shape in (MIDDLE, SMALL)
    ]


def foreign_cells(scale: Scale) -> list[ProduceCell]:
    """Return the cells of clients in other languages; says which are absent, and why."""
    cells: list[ProduceCell] = []
    for client, cells_of in (("Java", java_cells), ("franz-go", franz_go_cells)):
        try:
            cells += cells_of(scale)
        except (PeerAbsentError, GoAbsentError) as absent:
            print(f"  skipped, {client}: {absent}")
    return cells
