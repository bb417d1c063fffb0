"""B5: records as Arrow, against the Python clients that people use, from one Apache Kafka.

Every library reads the same topic from its beginning, in a process of its own on one core; the
broker has the other. The rate is that from the first records it gave to the last; what came before
is `first_s`. Cells: size of the records, codec, number of partitions; the ratios are of one round.
`cold` is a process that has just been started: what it has used of a CPU when the first records are
there, imports included.
`behind` is a topic with one partition six hours behind the others: what counts there is the memory
that the process takes, against the bound that it was given.
"""

import importlib.util
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench import b3_fetch, cold_client
from bench.arena import Arena
from bench.arrow_clients import ReadJob, ReadOutcome
from bench.arrow_topic import TopicShape, fill
from bench.broker import BROKER_CORE, CLIENT_CORE, ProcessBroker, pinned
from bench.clients import ClientError, expect_ready, say
from bench.raw import Client
from bench.results import KAFKA, OURS, Metric, Sample

NAME = "b5"
METRICS = (
    Metric("mrow_s", "Mrow/s"),
    Metric("mrow_cpu_s", "Mrow/cpu-s"),
    Metric("times_confluent", "x"),
    Metric("cpu_times_confluent", "x per CPU second"),
    Metric("times_kafkars", "x"),
    Metric("times_aiokafka", "x"),
    Metric("of_unordered", "x"),
    Metric("first_s", "s to the first records", more_is_better=False),
    Metric("first_cpu_s", "CPU s to the first records", more_is_better=False),
    Metric("grown_mb", "MB", more_is_better=False),
    Metric("of_bound", "x of the bound", more_is_better=False),
)
OURS_NAMES = ("unordered", "ordered")
PEERS = ("confluent", "aiokafka", "kafkars")
COLD_BYTES = 8 << 20
ROUNDS_MAX = 3
BATCH_BYTES = 10 << 20
"""Of one batch that is asked for."""

BEHIND_MS = 6 * 3_600_000
HELD_BYTES = 64 << 20
READ_TIMEOUT_S = 60.0
"""A library that does not come to an end by then is left out of the round."""

SLOW_ROWS = 1_000_000
"""What libraries below a million rows a second are given, so that a round ends."""

_numbers = itertools.count()


class NoEndError(ClientError):
    """A library neither gave all records nor ended."""


def cells(*, quick: bool) -> list[TopicShape]:
    """The topics to read."""
    small, large = (2_000_000, 400_000) if quick else (10_000_000, 2_000_000)
    found = [TopicShape(small, 64, 100), TopicShape(large, 64, 1_024, batch_bytes=100_000)]
    if not quick:
        found += [
            TopicShape(small, 1, 100),
            TopicShape(small, 1_000, 100),
            TopicShape(small, 64, 100, "lz4"),
            TopicShape(small, 64, 100, "zstd"),
            TopicShape(small, 64, 100, batch_bytes=900_000),
            TopicShape(large, 64, 1_024, "lz4", batch_bytes=100_000),
        ]
    return found


def run(arena: Arena) -> None:
    """Measure every cell on Apache Kafka, or on our broker where there is none."""
    arm = next((one for one in arena.arms if one.name == KAFKA), arena.arms[0])
    rounds = min(arena.scale.rounds, ROUNDS_MAX)
    with arena.folder() as folder:
        broker = arm.launch(folder / "broker", BROKER_CORE)
        try:
            broker.wait_ready()
            cold(arena, broker)
            for shape in cells(quick=arena.scale.quick):
                if not arena.wants(cell_of(shape)):
                    continue
                with filled(broker, shape) as topic:
                    for number in range(rounds):
                        compete(arena, broker, topic, shape, number)
            if arena.wants("behind"):
                behind(arena, broker)
        finally:
            broker.stop()


@contextmanager
def filled(broker: ProcessBroker, shape: TopicShape) -> Iterator[str]:
    """Lend a topic of this shape."""
    topic = f"arrow-{next(_numbers)}"
    fill(broker.port, topic, shape)
    try:
        yield topic
    finally:
        with Client(broker.port) as client:
            client.delete_topic(topic)


def compete(
    arena: Arena, broker: ProcessBroker, topic: str, shape: TopicShape, number: int
) -> None:
    """Let every library read the topic once."""
    found: dict[str, dict[str, float]] = {}
    cell = cell_of(shape)
    for library in (*PEERS, *OURS_NAMES):
        if library in PEERS and importlib.util.find_spec(MODULES[library]) is None:
            print(f"{library} is not installed")
            continue
        rows = shape.records if library in OURS_NAMES else min(shape.records, SLOW_ROWS)
        batch_rows = BATCH_BYTES // shape.record_bytes
        job = ReadJob(library, broker.bootstrap, topic, shape.partitions, rows, batch_rows)
        try:
            outcome = read(broker, job)
        except NoEndError as reason:
            if library in OURS_NAMES:
                raise
            print(f"  {reason}")
            continue
        if library == "ordered" and outcome.disorder:
            raise ClientError(f"{outcome.disorder} records came too late in {cell}")
        if not outcome.counted:
            print(f"  {library} gave everything at once in {cell}: no rate")
            continue
        values = {
            "mrow_s": outcome.counted / outcome.seconds / 1e6,
            "mrow_cpu_s": outcome.counted / outcome.cpu_seconds / 1e6,
            "first_s": outcome.first_s,
        }
        found[library] = dict(values)
        if library in OURS_NAMES:
            values |= compared(library, found)
        arena.recorder.add(Sample(NAME, f"{cell}: {library}", OURS, number, values))


def cell_of(shape: TopicShape) -> str:
    """The name of a topic in the table."""
    cell = f"{shape.record_bytes} B, {shape.codec}, {shape.partitions} partitions"
    return f"{cell}, batches of {shape.batch_bytes:,}"


def cold(arena: Arena, broker: ProcessBroker) -> None:
    """Start a process for each library in turns, and see what its first records cost."""
    wanted = [
        library for library in (*OURS_NAMES, *cold_client.PEERS) if arena.wants(f"cold: {library}")
    ]
    if not wanted:
        return
    topic = f"cold-{next(_numbers)}"
    with Client(broker.port) as client:
        client.create_topic(topic, b3_fetch.PARTITIONS)
    b3_fetch.fill(broker, topic, 100, COLD_BYTES)
    with arena.folder() as compiled:
        # Byte code is there, as where pip has installed a package; the first start makes it.
        for number, library in itertools.product(range(-1, arena.scale.rounds), wanted):
            values = cold_start(library, broker.bootstrap, topic, compiled)
            if number >= 0:
                arena.recorder.add(Sample(NAME, f"cold: {library}", OURS, number, values))


def cold_start(library: str, bootstrap: str, topic: str, compiled: Path) -> dict[str, float]:
    """Start one process, pinned as the driver is; what its first records cost."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(compiled)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "bench.cold_client", library, bootstrap, topic],
        capture_output=True,
        text=True,
        timeout=READ_TIMEOUT_S,
        check=False,
        env=environment,
    )
    if done.returncode:
        raise ClientError(f"{library}, cold: {done.stderr[-600:]}")
    return {"first_cpu_s": float(done.stdout), "process_s": time.perf_counter() - started}


def compared(library: str, found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """One of ours by the others of the same round."""
    mine = found[library]
    values = {
        f"times_{peer}": mine["mrow_s"] / found[peer]["mrow_s"] for peer in PEERS if peer in found
    }
    if "confluent" in found:
        values["cpu_times_confluent"] = mine["mrow_cpu_s"] / found["confluent"]["mrow_cpu_s"]
    if library == "ordered":
        values["of_unordered"] = mine["mrow_s"] / found["unordered"]["mrow_s"]
    return values


def behind(arena: Arena, broker: ProcessBroker) -> None:
    """Read a topic whose last partition is hours behind, within a bound of memory."""
    records = 2_000_000 if arena.scale.quick else 10_000_000
    shape = TopicShape(records, 64, 100, behind_ms=BEHIND_MS)
    with filled(broker, shape) as topic:
        job = ReadJob(
            *("ordered", broker.bootstrap, topic, shape.partitions, records),
            held_bytes=HELD_BYTES,
        )
        outcome = read(broker, job)
    if outcome.disorder:
        raise ClientError(f"{outcome.disorder} records came too late behind")
    values = {
        "mrow_s": outcome.counted / outcome.seconds / 1e6,
        "grown_mb": outcome.resident_mb,
        "of_bound": outcome.resident_mb / (HELD_BYTES / 1e6),
    }
    cell = f"one partition of 64 six hours behind, bound {HELD_BYTES >> 20} MiB"
    arena.recorder.add(Sample(NAME, cell, OURS, 0, values))


MODULES = {"confluent": "confluent_kafka", "aiokafka": "aiokafka", "kafkars": "kafkars"}


def read(broker: ProcessBroker, job: ReadJob) -> ReadOutcome:
    """Run one library in a process of its own."""
    process = subprocess.Popen(
        pinned([sys.executable, "-m", "bench.arrow_clients"], CLIENT_CORE),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        say(process, msgspec.json.encode(job).decode())
        expect_ready(process)
        printed, _ = process.communicate("go\n", timeout=READ_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise NoEndError(f"{job.library} did not end in {READ_TIMEOUT_S:.0f} s") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    if not printed.strip():
        raise NoEndError(f"{job.library} ended with {process.returncode} and no result")
    outcome = msgspec.json.decode(printed, type=ReadOutcome)
    if outcome.records < job.records:
        told = f"{job.library} stopped after {outcome.records:,} of {job.records:,} records"
        if job.library in OURS_NAMES:
            raise ClientError(told)
        print(f"  {told}")
    if not broker.is_alive():
        raise ClientError("the broker died")
    return outcome
