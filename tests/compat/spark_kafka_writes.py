"""Writes as cases: batches and streams, read back by another client; and what must be refused."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import functions as f
from tests.compat import spark_job as job
from tests.compat.spark_kafka_lab import ORDERS, REFUSED, Case, Lab, Stage
from tests.compat.spark_kafka_reads import EARLIEST, HEADERS
from tests.compat.spark_kafka_streams import fresh

WRITTEN = 200
KEYS = 40


@dataclass(frozen=True, slots=True)
class Sent:
    """A record as the write cases send it."""

    number: int

    @property
    def key(self) -> bytes | None:
        """Null for every fifth."""
        return None if self.number % 5 == 0 else f"key {self.number % KEYS}".encode()

    @property
    def value(self) -> bytes | None:
        """Null for every seventh."""
        return None if self.number % 7 == 0 else f"value {self.number}".encode()

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """None for every third."""
        if self.number % 3 == 0:
            return ()
        return (("n", str(self.number).encode()), ("n", None))


WRITTEN_SQL = (
    "case when id % 5 = 0 then null else concat('key ', id % {keys}) end as key",
    "case when id % 7 = 0 then null else cast(concat('value ', id) as binary) end as value",
    (
        "case when id % 3 = 0 then null else array("
        "named_struct('key', 'n', 'value', cast(cast(id as string) as binary)),"
        "named_struct('key', 'n', 'value', cast(null as binary))) end as headers"
    ),
)


def _everything(stage: Stage) -> object:
    """Every column, to two topics, in order."""
    stage.lab.create("written-even", 3)
    stage.lab.create("written-odd", 3)
    columns = [one.format(keys=KEYS) for one in WRITTEN_SQL]
    columns += ["if(id % 2 = 0, 'written-even', 'written-odd') as topic"]
    columns += ["cast(id % 3 as int) as partition"]
    frame = stage.spark.range(0, WRITTEN, 1, 1).selectExpr(*columns)
    job.write(frame, stage.to, {})
    return stage.lab.consumed("written-even"), stage.lab.consumed("written-odd")


def _everything_expected(_: Lab) -> object:
    found = []
    for parity in (0, 1):
        ends = [0, 0, 0]
        rows = []
        for number in range(parity, WRITTEN, 2):
            sent, at = Sent(number), number % 3
            rows.append((at, ends[at], sent.key, sent.value, sent.headers))
            ends[at] += 1
        found.append(tuple(sorted(rows, key=lambda row: row[:2])))
    return tuple(found)


def _by_key(stage: Stage) -> object:
    """Keys choose partitions; two tasks write, so the order is theirs."""
    stage.lab.create("keyed", 4)
    frame = stage.spark.range(0, WRITTEN, 1, 2).selectExpr(
        "cast(id as string) as key", "concat('value ', id) as value"
    )
    job.write(frame, stage.to, {"topic": "keyed"})
    return tuple(sorted((row[0], *row[2:]) for row in stage.lab.consumed("keyed")))


def _by_key_expected(_: Lab) -> object:
    rows = []
    for number in range(WRITTEN):
        key = str(number).encode()
        rows.append((murmur2(key) % 4, key, b"value " + key, ()))
    return tuple(sorted(rows))


def murmur2(key: bytes) -> int:
    """The hash by which Java's client chooses partitions, without its sign."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    found = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * factor & mask
        word = (word ^ word >> 24) * factor & mask
        found = (found * factor & mask) ^ word
    if key[whole:]:
        found = (found ^ int.from_bytes(key[whole:], "little")) * factor & mask
    found = (found ^ found >> 13) * factor & mask
    return (found ^ found >> 15) & 0x7FFFFFFF


def _piped(stage: Stage) -> object:
    """Topic to topic, in three runs."""
    fresh(stage, "raw", 3, 60)
    stage.lab.create("seen", 3)
    asked = {"subscribe": "raw", "maxOffsetsPerTrigger": "40", **HEADERS, **EARLIEST}
    for more in (60, 30, 0):
        found = job.read_stream(stage.spark, stage.to, asked)
        job.pipe(found, stage.to, {"topic": "seen"}, stage.folder / "checkpoint")
        if more:
            stage.lab.add("raw", more, 3)
    seen = stage.lab.consumed("seen")
    return tuple(sorted(((row[0], *row[2:]) for row in seen), key=repr))


def _piped_expected(lab: Lab) -> object:
    rows = []
    for _, partition, _, key, value, _, _, headers in lab.expected("raw"):
        seen = None if value is None else b"seen " + value.hex().upper().encode()
        rows.append((partition, key, seen, headers or ()))
    return tuple(sorted(rows, key=repr))


def _refused(*columns: str, options: Mapping[str, str]) -> Callable[[Stage], object]:
    def run(stage: Stage) -> object:
        job.write(stage.spark.range(3).selectExpr(*columns), stage.to, options)
        return "written"

    return run


def _overwriting(stage: Stage) -> object:
    frame = stage.spark.range(3).select(f.col("id").cast("string").alias("value"))
    to = stage.to
    writer = frame.write.format(to.format).option(to.option, to.address).option("topic", ORDERS)
    writer.mode("overwrite").save()
    return "written"


WRITES = (
    Case("write: all columns", _everything, _everything_expected, is_quick=True),
    Case("write: by key", _by_key, _by_key_expected, is_quick=True),
    Case("write: stream, three runs", _piped, _piped_expected, is_quick=True),
    Case(
        "write: without value", _refused("'k' as key", options={"topic": ORDERS}), lambda _: REFUSED
    ),
    Case("write: a number", _refused("id as value", options={"topic": ORDERS}), lambda _: REFUSED),
    Case("write: without topic", _refused("'v' as value", options={}), lambda _: REFUSED),
    Case(
        "write: null topic",
        _refused("'v' as value", "cast(null as string) as topic", options={}),
        lambda _: REFUSED,
    ),
    Case("write: overwrite", _overwriting, lambda _: REFUSED),
)
