"""Topics in Spark: the data source `lakelog`, and reads that use Spark's own Parquet scan.

`lakelog.spark.read` and `lakelog.spark.pin` are found when they are first used: Spark's workers
import this package, and need neither.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakelog.spark.frames import pin, read

__all__ = ["pin", "read"]


def __getattr__(name: str) -> object:
    if name in ("pin", "read"):
        return getattr(importlib.import_module("lakelog.spark.frames"), name)
    raise AttributeError(f"module 'lakelog.spark' has no attribute {name!r}")
