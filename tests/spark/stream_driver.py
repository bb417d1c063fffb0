"""The process that is killed: a stream from a topic into a Parquet sink, with a checkpoint.

With `--finish` it reads what is there, ends, and leaves the rows of the sink, as Spark reads them
through the sink's own list of files, in `result.parquet`.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from lakelog.pipeline.spark.session import SessionStart
from lakelog.pipeline.spark.settings import SparkOptions

RESULT = "result.parquet"
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.minBatchesToRetain": "100000",
    "spark.sql.warehouse.dir": "warehouse",
}


def stream(spark: SparkSession, arguments: argparse.Namespace) -> None:
    rows = (
        spark.readStream.format("lakelog")
        .option("lakelog.server", arguments.server)
        .option("subscribe", arguments.topic)
        .option("maxOffsetsPerTrigger", 2000)
        .load()
        .select("partition", "offset", "value")
    )
    writer = (
        rows.writeStream.format("parquet")
        .option("path", str(arguments.folder / "sink"))
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
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--finish", action="store_true")
    arguments = parser.parse_args()
    options = SparkOptions(master=arguments.master, settings=SETTINGS)
    with ThreadPoolExecutor(1) as pool:
        session = pool.submit(SessionStart(options).run).result()
    try:
        stream(session.spark, arguments)
        if arguments.finish:
            sink = session.spark.read.parquet(str(arguments.folder / "sink"))
            pq.write_table(sink.toArrow(), arguments.folder / RESULT)
    finally:
        session.close()


if __name__ == "__main__":
    main()
