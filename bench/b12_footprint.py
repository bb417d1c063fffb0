"""B12: how soon a broker serves and how much memory it holds.

Cold: a fresh directory, from the start of the process to the first acknowledged record of a topic
made by then. Restart: the same directory, to the next acknowledged record. Nothing is pinned here,
because a start is judged by the clock. Each arm is alone on the machine while it starts.
"""

import time
from pathlib import Path

from bench.arena import Arena, Arm
from bench.broker import ProcessBroker, StartError
from bench.clients import run_jobs
from bench.jobs import ProduceJob
from bench.pipeline import make_batches
from bench.raw import Client, KafkaError
from bench.results import Metric, Sample

NAME = "b12"
PARTITIONS = 16
RATE_BYTES_S = 100e6
SETTLE_S = 1.0
FIRST_ACK_TIMEOUT_S = 60.0
RETRY_S = 0.005
METRICS = (
    Metric("first_ack_s", "s", more_is_better=False),
    Metric("restart_ack_s", "s", more_is_better=False),
    Metric("rss_idle_mb", "MB", more_is_better=False),
    Metric("rss_loaded_mb", "MB", more_is_better=False),
    Metric("loaded_mb_s", "MB/s"),
    Metric("rss_partitions_mb", "MB", more_is_better=False),
    Metric("stop_s", "s", more_is_better=False),
)


def run(arena: Arena) -> None:
    """Measure each arm in turns, on fresh directories."""
    for number in range(arena.scale.rounds):
        for arm in arena.arms:
            with arena.folder() as folder:
                values = measure(arena, arm, folder / arm.name)
            partitions = arena.scale.partitions[-1]
            cell = f"then 100 MB/s, then {partitions:,} partitions"
            arena.recorder.add(Sample(NAME, cell, arm.name, number, values))


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
