"""Streams as cases: portions, restarts, topics that change between two runs.

Every case makes its own topics, because it writes to them while it runs.
"""

import itertools
import json
from collections.abc import Callable, Mapping

from tests.compat import spark_job as job
from tests.compat.spark_job import Rows
from tests.compat.spark_kafka_lab import ORDERS, REFUSED, Case, Lab, Stage
from tests.compat.spark_kafka_reads import (
    EARLIEST,
    HEADERS,
    OFFSET,
    PARTITION,
    at_ms,
    per_partition,
    selected,
)

PER_TRIGGER = 67


def stream(stage: Stage, options: Mapping[str, str]) -> list[int]:
    """One run of a query that keeps rows, until it has everything."""
    found = job.read_stream(stage.spark, stage.to, {**HEADERS, **options})
    return job.keep(found, stage.folder)


def kept(stage: Stage) -> Rows:
    """What the runs of the case have kept."""
    return job.rows_of(job.kept(stage.spark, stage.folder))


def fresh(stage: Stage, topic: str, partitions: int, count: int) -> None:
    """Make a topic with records."""
    stage.lab.create(topic, partitions)
    stage.lab.add(topic, count, partitions)


def _portions(stage: Stage) -> object:
    fresh(stage, "portions", 3, 150)
    asked = {"subscribe": "portions", "maxOffsetsPerTrigger": str(PER_TRIGGER), **EARLIEST}
    sizes = stream(stage, asked)
    first = kept(stage)
    stage.lab.add("portions", 90, 3)
    sizes += stream(stage, asked)
    stream(stage, asked)
    # Spark's connector rounds for each partition, so one or two more may come.
    return max(sizes) <= PER_TRIGGER + 3, len(first), kept(stage)


def _from_offsets(stage: Stage) -> object:
    fresh(stage, "assigned", 3, 60)
    stream(
        stage,
        {
            "assign": json.dumps({"assigned": [0, 2]}),
            "startingOffsets": per_partition("assigned", {0: 5, 2: -2}),
        },
    )
    return kept(stage)


def _from_time(stage: Stage) -> object:
    stream(stage, {"subscribe": ORDERS, "startingTimestamp": str(at_ms(stage.lab, 250))})
    return kept(stage)


def _pattern(stage: Stage) -> object:
    fresh(stage, "seasonal-spring", 1, 20)
    asked = {"subscribePattern": "seasonal-.*", **EARLIEST}
    stream(stage, asked)
    fresh(stage, "seasonal-summer", 2, 30)
    stage.lab.add("seasonal-spring", 10, 1)
    stream(stage, asked)
    return kept(stage)


def _growing(stage: Stage) -> object:
    fresh(stage, "growing", 1, 20)
    asked = {"subscribe": "growing", **EARLIEST}
    stream(stage, asked)
    stage.lab.grow("growing", 3)
    stage.lab.add("growing", 30, 3)
    stream(stage, asked)
    return kept(stage)


def _followed(stage: Stage) -> object:
    fresh(stage, "followed", 2, 20)
    found = job.read_stream(stage.spark, stage.to, {**HEADERS, "subscribe": "followed"})
    job.follow(found, stage.folder, lambda: stage.lab.add("followed", 40, 2))
    return kept(stage)


def _overtaken(fail_on_data_loss: bool) -> Callable[[Stage], object]:
    """Retention removes records between two runs."""
    topic = "overtaken" if fail_on_data_loss else "overtaken-never-mind"

    def run(stage: Stage) -> object:
        fresh(stage, topic, 1, 20)
        asked = {
            "subscribe": topic,
            "failOnDataLoss": str(fail_on_data_loss).lower(),
            **EARLIEST,
        }
        stream(stage, asked)
        stage.lab.add(topic, 40, 1)
        stage.lab.trim(topic, 35)
        stream(stage, asked)
        return kept(stage)

    return run


def _counted(stage: Stage) -> object:
    found = job.read_stream(stage.spark, stage.to, {"subscribe": ORDERS, **EARLIEST})
    name = f"counted_{stage.to.format}_{stage.lab.broker.name}"
    return tuple(map(job.values_of, job.count(found, name).collect()))


def _counts(lab: Lab) -> Rows:
    counts = []
    for partition, rows in itertools.groupby(lab.expected(ORDERS), key=lambda row: row[PARTITION]):
        there = list(rows)
        size = sum(len(row[4]) for row in there if row[4] is not None)
        counts.append((ORDERS, partition, len(there), size, there[-1][OFFSET]))
    return tuple(counts)


STREAMS = (
    Case(
        "stream: portions, two restarts",
        _portions,
        lambda lab: (True, 150, lab.expected("portions")),
    ),
    Case(
        "stream: assign and offsets",
        _from_offsets,
        selected("assigned", wanted=lambda _, at, offset, __: (at == 0 and offset >= 5) or at == 2),
    ),
    Case(
        "stream: from a time",
        _from_time,
        selected(ORDERS, wanted=lambda lab, _, __, us: us // 1_000 >= at_ms(lab, 250)),
    ),
    Case(
        "stream: a pattern, then a new topic",
        _pattern,
        lambda lab: lab.expected("seasonal-spring", "seasonal-summer"),
    ),
    Case(
        "stream: new partitions",
        _growing,
        lambda lab: lab.expected("growing"),
    ),
    Case(
        "stream: followed from the latest",
        _followed,
        selected("followed", wanted=lambda _, __, offset, ___: offset >= 10),
    ),
    Case("stream: overtaken", _overtaken(True), lambda _: REFUSED),
    Case(
        "stream: overtaken, never mind",
        _overtaken(False),
        lambda lab: tuple(
            row
            for row in lab.expected("overtaken-never-mind")
            if row[OFFSET] < 20 or row[OFFSET] >= 35
        ),
    ),
    Case("stream: counted", _counted, _counts),
)
