"""What goes wrong in a read, as a user of Spark sees it: the text names the option or object."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.lake.running import Broker, running_broker
from tests.spark.kinds import damage, reader

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose objects are damaged."""
    with running_broker(tmp_path_factory.mktemp("damaged")) as running:
        running.create("t")
        running.produce("t", [b"x" * 300] * 10, codec="none")
        yield running


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "no-such"}, "subscribe names 'no-such', and there is no such topic"),
        ({"subscribes": "t"}, "subscribes is not an option; did you mean subscribe?"),
        ({"startingOffsets": "soon"}, "startingOffsets"),
        ({"startingOffsets": '{"t":{"0":99}}'}, "t-0 ends at offset 10, and [99, 10) is wanted"),
        ({"endingOffsets": '{"t":{"0":11}}'}, "t-0 ends at offset 10, and [0, 11) is wanted"),
        ({"endingOffsets": '{"t":{"7":1}}'}, "endingOffsets must name every partition"),
        ({"startingOffsets": "latest"}, "startingOffsets of a batch cannot be latest"),
        ({"minPartitions": "-1"}, "minPartitions"),
        ({"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset is not supported"),
        ({"lakelog.server": "http://127.0.0.1:1"}, "127.0.0.1:1 cannot be reached"),
        ({"includeHeaders": "perhaps"}, "includeHeaders is 'perhaps', but must be true or false"),
    ],
)
def test_bad_options_are_named(
    spark: SparkSession, other: Broker, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as found:
        reader(spark, other, "t").options(**options).load().count()
    assert said in str(found.value)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("ofset long", "schema names 'ofset', which is no column; did you mean offset?"),
        ("offset string", "offset has the type bigint, not string"),
    ],
)
def test_bad_columns_are_named(spark: SparkSession, other: Broker, schema: str, said: str) -> None:
    with pytest.raises(PySparkException) as found:
        reader(spark, other, "t").schema(schema).load().count()
    assert said in str(found.value)


def test_offsets_beyond_the_ends_are_left_out_if_that_may_be(
    spark: SparkSession, other: Broker
) -> None:
    options = {"failOnDataLoss": "false", "endingOffsets": '{"t":{"0":11}}'}
    assert reader(spark, other, "t", **options).load().count() == 10


def test_a_damaged_object_is_named(spark: SparkSession, other: Broker) -> None:
    other.create("bad")
    other.produce("bad", [b"a value of its own" * 9], codec="none")
    key = damage(other, b"a value of its own")
    with pytest.raises(PySparkException) as found:
        reader(spark, other, "bad").load().count()
    assert f"Corrupt: {key}: " in str(found.value)


@pytest.mark.timeout(400)
@pytest.mark.proof
def test_a_killed_worker_is_replaced_and_rows_come_once() -> None:
    """In a process of its own: only a session that was started so tries tasks again."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.worker_kills", "--times", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
