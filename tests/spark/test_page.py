"""The examples of docs/spark.md that are marked `python spark`: programs that run as they stand."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.docs.pages import DOCS, Fence, fences
from tests.lake.running import Broker

SERVER = "http://127.0.0.1:8080"
FENCES = [one for one in fences(DOCS / "spark.md") if one.words == ("python", "spark")]


@pytest.fixture(scope="module")
def orders(broker: Broker) -> str:
    broker.create("orders", lakelog_table_freshness_ms="0")
    broker.produce("orders", [b"one", b"two"])
    broker.compact()
    broker.produce("orders", [b"three"])
    return broker.server


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """What an example sets does not stay."""
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize("fence", FENCES, ids=lambda one: str(one.place))
def test_an_example_runs(
    fence: Fence, session: SparkSession, orders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert session is not None
    exec(compile(fence.text.replace(SERVER, orders), fence.place, "exec"), {})
    assert " rows" in capsys.readouterr().out
