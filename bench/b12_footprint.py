"""B12: how soon a broker serves, how much memory it holds, and what it does when nothing is asked.

Cold: a fresh directory, from the start of the process to the first acknowledged record of a topic
made by then. Restart: the same directory, to the next acknowledged record. Nothing is pinned here,
because a start is judged by the clock. Each arm is alone on the machine while it starts.

Idle: the share of a core that a broker uses that has been warmed by some records, with nobody
connected, with 500 connections that ask nothing, and with ten members of a group whose fetches wait
for records that do not come.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.arena import Arena, Arm
from bench.broker import BROKER_CORE, ProcessBroker, StartError
from bench.clients import run_jobs
from bench.jobs import ParkJob, ProduceJob
from bench.pipeline import make_batches
from bench.raw import API_VERSIONS, Client, KafkaError
from bench.results import Metric, Sample

NAME = "b12"
PARTITIONS = 16
RATE_BYTES_S = 100e6
SETTLE_S = 1.0
FIRST_ACK_TIMEOUT_S = 60.0
RETRY_S = 0.005
IDLE_CONNECTIONS = 500
PARKED = 10
IDLE_S_MIN = 2.0
LOAD_S = 1.0
METRICS = (
    Metric("first_ack_s", "s", more_is_better=False),
    Metric("restart_ack_s", "s", more_is_better=False),
    Metric("rss_idle_mb", "MB", more_is_better=False),
    Metric("rss_loaded_mb", "MB", more_is_better=False),
    Metric("loaded_mb_s", "MB/s"),
    Metric("rss_partitions_mb", "MB", more_is_better=False),
    Metric("stop_s", "s", more_is_better=False),
    Metric("idle_cpu_percent", "% of a core", more_is_better=False),
)


def run(arena: Arena) -> None:
    """Measure each arm in turns, on fresh directories."""
    if arena.wants("idle"):
        run_idle(arena)
    cell = f"then 100 MB/s, then {arena.scale.partitions[-1]:,} partitions"
    if arena.wants(cell):
        for number in range(arena.scale.rounds):
            for arm in arena.arms:
                with arena.folder() as folder:
                    values = measure(arena, arm, folder / arm.name)
                arena.recorder.add(Sample(NAME, cell, arm.name, number, values))


def run_idle(arena: Arena) -> None:
    """Measure what idling costs each arm, in turns."""
    seconds = max(arena.scale.seconds, IDLE_S_MIN)
    for number in range(arena.scale.rounds):
        for arm in arena.arms:
            with arena.folder() as folder:
                broker = arm.launch(folder / arm.name, BROKER_CORE)
                try:
                    first_ack(broker, create=True)
                    for cell, share in idle_shares(broker, seconds):
                        values = {"idle_cpu_percent": share * 100}
                        arena.recorder.add(Sample(NAME, cell, arm.name, number, values))
                finally:
                    broker.stop()


def idle_shares(broker: ProcessBroker, seconds: float) -> Iterator[tuple[str, float]]:
    """Yield the share of a core that is used in each state of rest."""
    with Client(broker.port) as client:
        client.create_topic("load", PARTITIONS)
        client.create_topic("quiet", PARTITIONS)
    load(broker, LOAD_S)
    broker.settle()
    yield "idle, nobody connected", idle_share(broker, seconds)
    with ExitStack() as stack:
        for _ in range(IDLE_CONNECTIONS):
            stack.enter_context(Client(broker.port)).call(API_VERSIONS, 0, b"")
        broker.settle()
        yield f"idle, {IDLE_CONNECTIONS} connections", idle_share(broker, seconds)
    effort = run_jobs(broker, [ParkJob(broker.bootstrap, "quiet", PARKED, seconds)])
    yield f"idle, {PARKED} group consumers", effort.cpu_seconds / effort.wall_seconds


def idle_share(broker: ProcessBroker, seconds: float) -> float:
    """Return the share of a core that a broker uses for some seconds."""
    cpu_before, wall_before = broker.cpu_seconds(), time.perf_counter()
    time.sleep(seconds)
    return (broker.cpu_seconds() - cpu_before) / (time.perf_counter() - wall_before)


def measure(arena: Arena, arm: Arm, data: Path) -> dict[str, float]:
    """Start, load, spread, stop, start again."""
    values: dict[str, float] = {}
    broker = arm.launch(data, None)
    try:
        values["first_ack_s"] = first_ack(broker, create=True)
        time.sleep(SETTLE_S)
        values["rss_idle_mb"] = broker.rss_bytes() / 1e6
        with Client(broker.port) as client:
            client.create_topic("load", PARTITIONS)
            values["loaded_mb_s"] = load(broker, max(arena.scale.seconds, 2.0))
            values["rss_loaded_mb"] = broker.rss_bytes() / 1e6
            client.create_topic("spread", arena.scale.partitions[-1])
            values["rss_partitions_mb"] = broker.rss_bytes() / 1e6
        started = time.monotonic()
        broker.stop()
        values["stop_s"] = time.monotonic() - started
        broker = arm.launch(data, None)
        values["restart_ack_s"] = first_ack(broker, create=False)
    finally:
        broker.stop()
    return values


def first_ack(broker: ProcessBroker, *, create: bool) -> float:
    """Return the seconds from the process's start to its first acknowledgement."""
    record = make_batches(1_024, 1)[0]
    deadline = broker.started_s + FIRST_ACK_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            with Client(broker.port, timeout_s=FIRST_ACK_TIMEOUT_S) as client:
                if create:
                    client.create_topic("first", 1)
                    create = False
                client.produce("first", 0, record)
            return time.monotonic() - broker.started_s
        except (OSError, KafkaError):
            # Not listening yet, or listening before it leads: what a client would retry.
            time.sleep(RETRY_S)
    raise StartError(f"{broker.name} acknowledged nothing: {broker.log()}")


def load(broker: ProcessBroker, seconds: float) -> float:
    """Produce at a fixed rate; return the rate that was reached."""
    job = ProduceJob(
        bootstrap=broker.bootstrap,
        topic="load",
        partitions=PARTITIONS,
        record_bytes=1_024,
        batch_bytes=1_000_000,
        linger_ms=20.0,
        seconds=seconds,
        bytes_max=1 << 40,
        rate_bytes_s=RATE_BYTES_S,
    )
    return run_jobs(broker, [job]).megabytes_per_second()
