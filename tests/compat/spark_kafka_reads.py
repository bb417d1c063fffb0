"""Batches as cases: every way to say what is read.

A case returns something that compares; the rows that were written decide what it must be, so that
arms which agree on something wrong are found out, too.
"""

import json
from collections.abc import Callable, Mapping

from tests.compat import spark_job as job
from tests.compat.spark_job import Rows
from tests.compat.spark_kafka_lab import (
    LATE,
    ORDERS,
    PAYMENTS,
    REFUSED,
    TRIMMED,
    TRIMMED_TO,
    Case,
    Lab,
    Stage,
)

HEADERS = {"includeHeaders": "true"}
EARLIEST = {"startingOffsets": "earliest"}
TOPIC, PARTITION, OFFSET, KEY, VALUE, TIME_US = range(6)


def per_partition(topic: str, offsets: Mapping[int, int]) -> str:
    """A number for each partition as JSON."""
    return json.dumps({topic: {str(partition): at for partition, at in offsets.items()}})


def batch(
    name: str,
    options: Callable[[Lab], Mapping[str, str]],
    expected: Callable[[Lab], object],
    *,
    is_quick: bool = False,
) -> Case:
    """A batch that is read with headers."""

    def run(stage: Stage) -> Rows:
        return job.rows_of(job.read(stage.spark, stage.to, {**HEADERS, **options(stage.lab)}))

    return Case(name, run, expected, is_quick)


def selected(*topics: str, wanted: Callable[[Lab, int, int, int], bool]) -> Callable[[Lab], Rows]:
    """The written rows of topics, by partition, offset and microseconds."""

    def rows(lab: Lab) -> Rows:
        return tuple(
            row
            for row in lab.expected(*topics)
            if wanted(lab, row[PARTITION], row[OFFSET], row[TIME_US])
        )

    return rows


def at_ms(lab: Lab, number: int) -> int:
    """The time of a record by its number."""
    return lab.base_ms + number


SOME = {0: 10, 1: -2, 2: 99, 3: 100}
SOME_END = {0: 60, 1: 7, 2: -1, 3: 100}


def _between(_: Lab, partition: int, offset: int, __: int) -> bool:
    end = SOME_END[partition]
    return offset >= SOME[partition] and (end < 0 or offset < end)


BATCHES = (
    batch(
        "batch: subscribe",
        lambda _: {"subscribe": f"{ORDERS},{PAYMENTS}"},
        lambda lab: lab.expected(ORDERS, PAYMENTS),
        is_quick=True,
    ),
    batch(
        "batch: assign",
        lambda _: {"assign": json.dumps({ORDERS: [1, 3], LATE: [0]})},
        lambda lab: tuple(
            row
            for row in lab.expected(ORDERS, LATE)
            if (row[TOPIC], row[PARTITION]) in {(ORDERS, 1), (ORDERS, 3), (LATE, 0)}
        ),
    ),
    batch(
        "batch: pattern",
        lambda _: {"subscribePattern": "ord.*"},
        lambda lab: lab.expected(ORDERS, LATE),
    ),
    batch(
        "batch: offsets",
        lambda _: {
            "subscribe": ORDERS,
            "startingOffsets": per_partition(ORDERS, SOME),
            "endingOffsets": per_partition(ORDERS, SOME_END),
        },
        selected(ORDERS, wanted=_between),
        is_quick=True,
    ),
    batch(
        "batch: one time",
        lambda lab: {
            "subscribe": ORDERS,
            "startingTimestamp": str(at_ms(lab, 150)),
            "endingTimestamp": str(at_ms(lab, 301)),
        },
        selected(
            ORDERS,
            wanted=lambda lab, _, __, us: at_ms(lab, 150) <= us // 1_000 < at_ms(lab, 301),
        ),
    ),
    batch(
        "batch: a time for each",
        lambda lab: {
            "subscribe": LATE,
            "startingOffsetsByTimestamp": per_partition(LATE, {0: at_ms(lab, 0), 1: at_ms(lab, 9)}),
            "endingOffsetsByTimestamp": per_partition(LATE, {0: at_ms(lab, 20), 1: at_ms(lab, 99)}),
        },
        selected(
            LATE,
            wanted=lambda lab, partition, _, us: (
                us // 1_000 < at_ms(lab, 20) if partition == 0 else us // 1_000 >= at_ms(lab, 9)
            ),
        ),
    ),
    batch(
        "batch: a time that no record has reached",
        lambda lab: {"subscribe": ORDERS, "startingTimestamp": str(at_ms(lab, 10**9))},
        lambda _: REFUSED,
    ),
    batch(
        "batch: the same, latest instead",
        lambda lab: {
            "subscribe": ORDERS,
            "startingTimestamp": str(at_ms(lab, 10**9)),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        lambda _: (),
    ),
    batch(
        "batch: offsets for some partitions only",
        lambda _: {"subscribe": ORDERS, "startingOffsets": per_partition(ORDERS, {0: 1})},
        lambda _: REFUSED,
    ),
    batch(
        "batch: from the latest",
        lambda _: {"subscribe": ORDERS, "startingOffsets": "latest"},
        lambda _: REFUSED,
    ),
    batch(
        "batch: trimmed",
        lambda _: {"subscribe": TRIMMED, "startingOffsets": per_partition(TRIMMED, {0: 3})},
        lambda _: REFUSED,
    ),
    batch(
        "batch: trimmed, never mind",
        lambda _: {
            "subscribe": TRIMMED,
            "startingOffsets": per_partition(TRIMMED, {0: 3}),
            "failOnDataLoss": "false",
        },
        lambda lab: lab.expected(TRIMMED)[TRIMMED_TO:],
        is_quick=True,
    ),
    batch(
        "batch: trimmed, from the earliest",
        lambda _: {"subscribe": TRIMMED, **EARLIEST},
        lambda lab: lab.expected(TRIMMED)[TRIMMED_TO:],
    ),
)


def _in_pieces(stage: Stage) -> object:
    frame = job.read(stage.spark, stage.to, {"subscribe": ORDERS, "minPartitions": "12", **HEADERS})
    return frame.rdd.getNumPartitions() >= 12, job.rows_of(frame)


def _queried(stage: Stage) -> object:
    """SQL over the columns that everybody uses."""
    frame = job.read(stage.spark, stage.to, {"subscribe": ORDERS})
    frame.createOrReplaceTempView("asked")
    question = (
        "select topic, partition, count(*), sum(length(value)), "
        "unix_micros(min(timestamp)), count(key), "
        "max(offset) from asked where offset >= 10 and partition <> 2 group by 1, 2 order by 1, 2"
    )
    answer = stage.spark.sql(question)
    return frame.dtypes, tuple(map(job.values_of, answer.collect()))


def _query_expected(lab: Lab) -> object:
    kinds = [
        *(("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int")),
        *(("offset", "bigint"), ("timestamp", "timestamp"), ("timestampType", "int")),
    ]
    answers = []
    for partition in (0, 1, 3):
        rows = [
            one for one in lab.expected(ORDERS) if one[PARTITION] == partition and one[OFFSET] >= 10
        ]
        sizes = sum(len(one[VALUE]) for one in rows if one[VALUE] is not None)
        first = min(one[TIME_US] for one in rows)
        keys = sum(one[KEY] is not None for one in rows)
        answers.append((ORDERS, partition, len(rows), sizes, first, keys, rows[-1][OFFSET]))
    return kinds, tuple(answers)


READS = (
    *BATCHES,
    Case("batch: in more pieces", _in_pieces, lambda lab: (True, lab.expected(ORDERS))),
    Case("batch: SQL", _queried, _query_expected),
)
