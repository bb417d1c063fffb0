"""Runs SQL in a Spark of its own, for `tests.compat.spark_runtime`; needs nothing but PySpark.

Reads one JSON object from standard input, `{"uri": …, "jar": …, "statements": [[name, sql], …]}`,
and prints one on the last line: for each name the rows, or the error.
"""

import json
import sys
from typing import Any

import pyspark
from pyspark.sql import SparkSession

CATALOG = "lake"
ERROR_LINES = 3


def session(uri: str, jar: str) -> Any:
    """Return a session whose catalog `lake` is the one at the URI."""
    settings = {
        "spark.jars": jar,
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "rest",
        f"spark.sql.catalog.{CATALOG}.uri": uri,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.log.level": "ERROR",
    }
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").appName("lakelog-compat")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def outcome(spark: Any, sql: str) -> dict[str, Any]:
    """Return the rows of a statement as text, or the first lines of what went wrong."""
    try:
        rows = spark.sql(sql).collect()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        lines = str(error).strip().splitlines()
        return {"error": " ".join(lines[:ERROR_LINES])}
    return {"rows": [[None if cell is None else str(cell) for cell in row] for row in rows]}


def main() -> None:
    """Answer the one question on standard input."""
    asked = json.load(sys.stdin)
    spark = session(asked["uri"], asked["jar"])
    try:
        answers = {name: outcome(spark, sql) for name, sql in asked["statements"]}
    finally:
        spark.stop()
    print(json.dumps({"version": pyspark.__version__, "answers": answers}))


if __name__ == "__main__":
    main()
