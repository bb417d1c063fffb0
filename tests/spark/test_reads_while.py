"""A short run of `tests.spark.reads_while`: reads are exact while everything moves."""

from pyspark.sql import SparkSession
from tests.lake.running import Broker
from tests.spark.reads_while import prove


def test_reads_equal_the_log_at_their_offsets_while_it_grows_and_is_compacted(
    spark: SparkSession, broker: Broker
) -> None:
    counts = prove(spark, broker, times=6, seed=5)
    assert all(counts[way] == 2 for way in ("by_format", "by_scan", "by_arrow"))
