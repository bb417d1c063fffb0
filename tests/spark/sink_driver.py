"""The process that is killed: a stream from files of text into a topic, with a checkpoint.

A line becomes a record; every second one has a key. With `--finish` it writes what is there and
ends.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from lakelog.pipeline.spark.session import SessionStart
from lakelog.pipeline.spark.settings import SparkOptions

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.minBatchesToRetain": "100000",
    "spark.sql.warehouse.dir": "warehouse",
}


def stream(spark: SparkSession, arguments: argparse.Namespace) -> None:
    lines = spark.readStream.option("maxFilesPerTrigger", 3).text(str(arguments.folder / "files"))
    # Shuffled, so that a batch that is repeated has its rows in other tasks and another order.
    rows = lines.repartition(2).selectExpr(
        "if(int(value) % 2 = 0, concat('k', value), null) as key", "value"
    )
    writer = (
        rows.writeStream.format("lakelog")
        .option("lakelog.server", arguments.server)
        .option("topic", arguments.topic)
        .option("checkpointLocation", str(arguments.folder / "checkpoint"))
    )
    if arguments.finish:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--finish", action="store_true")
    arguments = parser.parse_args()
    options = SparkOptions(master="local[2]", settings=SETTINGS)
    with ThreadPoolExecutor(1) as pool:
        session = pool.submit(SessionStart(options).run).result()
    session.spark.createDataFrame(
        [], "none int"
    )  # makes it this thread's session, which Spark asks
    try:
        stream(session.spark, arguments)
    finally:
        session.close()


if __name__ == "__main__":
    main()
