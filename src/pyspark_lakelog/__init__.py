"""Where Spark looks for data sources: it imports every top-level module named `pyspark_…`."""

from lakelog.spark.source import LakelogSource as DefaultSource

__all__ = ["DefaultSource"]
