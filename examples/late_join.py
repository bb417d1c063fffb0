"""Joins two streams, orders and payments, of which one may be late.

    lakelog up                                  # a broker, in another terminal
    for topic in orders payments settled-orders; do lakelog topics create $topic; done
    python examples/late_join.py --demo

A payment belongs to its order if it was made within an hour after it. Payments may arrive up to two
hours late, and orders up to ten minutes: so long both sides wait for each other in the state of the
query, and not longer. An order that was not paid in time is written as well, without a payment. Of
late records those that could still matter are taken, and the others are dropped and counted.
"""

import argparse
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr, from_json, struct, to_json

ORDERS: Final = "orders"
PAYMENTS: Final = "payments"
SETTLED: Final = "settled-orders"

NOON: Final = datetime(2024, 5, 1, 12, tzinfo=UTC)
DEMO: Final = (
    # minutes after noon for each order, and for each payment, in the order in which they arrive
    ({"a": 0, "b": 5, "c": 10}, {"a": 3}),
    ({"d": 400}, {"b": 40, "d": 401}),  # the payment of b is late, and taken; c is given up
    ({"e": 402}, {"c": 50, "e": 403}),  # that of c was in time, and comes too late to matter
)


def settled(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Every order with its payment, or without one when none can come any more."""
    paid = payments.withWatermark("paid_at", "2 hours").withColumnRenamed("id", "order_id")
    made = orders.withWatermark("ordered_at", "10 minutes")
    in_time = "id = order_id AND paid_at >= ordered_at AND paid_at <= ordered_at + INTERVAL 1 HOUR"
    joined = made.join(paid, expr(in_time), "leftOuter")
    return joined.select(
        col("id").alias("key"), to_json(struct("id", "ordered_at", "paid_at")).alias("value")
    )


def read_events(spark: SparkSession, server: str, topic: str, time: str) -> DataFrame:
    """The events of a topic as a stream of ids and times."""
    records = (
        spark.readStream.format("lakelog")
        .option("lakelog.server", server)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    event = from_json(col("value").cast("string"), "at timestamp")
    return records.select(col("key").cast("string").alias("id"), event.at.alias(time))


def all_settled(spark: SparkSession, server: str) -> DataFrame:
    """What was decided about every order."""
    records = (
        spark.read.format("lakelog")
        .option("lakelog.server", server)
        .option("subscribe", SETTLED)
        .load()
    )
    kind = "id string, ordered_at timestamp, paid_at timestamp"
    order = from_json(col("value").cast("string"), kind)
    return records.select(order.alias("order")).select("order.*").orderBy("id")


def write_demo(spark: SparkSession, server: str, batch: int) -> None:
    """Some orders and payments, of which a few are late."""
    for topic, events in zip((ORDERS, PAYMENTS), DEMO[batch], strict=True):
        rows = [(one, NOON + timedelta(minutes=minutes)) for one, minutes in events.items()]
        (
            spark.createDataFrame(rows, "key string, at timestamp")
            .select("key", to_json(struct("at")).alias("value"))
            .write.format("lakelog")
            .option("lakelog.server", server)
            .option("topic", topic)
            .mode("append")
            .save()
        )


def main(spark: SparkSession, server: str, checkpoint: str, *, demo: bool, once: bool) -> None:
    """Join until there are no more records (`once`), or for ever."""
    joining = (
        settled(
            read_events(spark, server, ORDERS, "ordered_at"),
            read_events(spark, server, PAYMENTS, "paid_at"),
        )
        .writeStream.format("lakelog")
        .option("lakelog.server", server)
        .option("topic", SETTLED)
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
    )
    # Time goes on between batches: each run takes what came since the last one.
    for batch in range(len(DEMO)) if demo else ():
        write_demo(spark, server, batch)
        joining.trigger(availableNow=True).start().awaitTermination()
    if not once:
        joining.trigger(processingTime="1 second").start().awaitTermination()
    elif not demo:
        joining.trigger(availableNow=True).start().awaitTermination()
    all_settled(spark, server).show(20, truncate=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Join orders with payments that may be late.")
    parser.add_argument("--server", default="http://127.0.0.1:8080", help="a broker's HTTP port")
    parser.add_argument("--checkpoint", default="checkpoints/late-join")
    parser.add_argument("--demo", action="store_true", help="write some orders and payments")
    parser.add_argument("--once", action="store_true", help="end when all records are joined")
    given = parser.parse_args()
    builder = SparkSession.builder.appName("late join")
    session = builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    main(session, given.server, given.checkpoint, demo=given.demo, once=given.once)
