"""Topics in Spark: the data source `lakelog`, and reads that use Spark's own Parquet scan.

Who does what:

- `source` is what Spark finds: `LakelogSource` names a reader or a writer, and imports no other.
- `batch_reader` plans a read once (`BatchReader`), and reads a `SplitPartition` in each task.
- `stream_reader` plans micro-batches: a `StreamQuery` decides where a stream begins and how far a
  trigger goes, by `stream_offsets` (pure) over what `topic_poller` learnt of the topics.
- `frames` is the quick way: `read` and `pin` have Spark scan the data files itself
  (`parquet_scan`), and leave the log's tail to the data source.
- `writer` puts WAL objects in tasks and commits them in the driver.
- `runtime` is the one event loop of a Spark process, with what is open on it.

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
