"""Topics as data frames that read their data files with Spark's own Parquet scan.

    lakelog.spark.read(spark, "orders", server="http://127.0.0.1:8080")

The rows are those of `format("lakelog")`; what lies in data files is read by Spark itself, with all
that it can do there (columns that nobody needs are not read, row groups are skipped), and the rest,
fresh records above all, by the data source. Both are pinned to one offset vector, taken when the
function is called.

Rules:

- A scan of Spark's cannot look for a file that is gone. Data files that are replaced stay for
  `pipeline.grace_ms`; who keeps a read for longer keeps `pin(…)`, whose `frame()` finds the same
  rows wherever they are by then.
- Files are never skipped in silence, whatever the session says about missing or corrupt ones.
- Where Spark has no file system for the store, the data source reads everything, with a warning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final, Unpack

from lakelog.config.named_options import CONFIG, SERVER
from lakelog.lake.read.arrow_reader import ParsedRead, ReadOptions, read_call
from lakelog.lake.read.range_plan import Pinned, PlannedRange, pruned_entries, pruned_ranges
from lakelog.lake.read.range_reader import RowOptions
from lakelog.lake.read.read_options import (
    FAIL_ON_DATA_LOSS,
    MAX_RECORDS,
    MIN_PARTITIONS,
    SUBSCRIBE,
)
from lakelog.lake.read.read_request import (
    TYPES,
    PartitionName,
    filters_of,
)
from lakelog.lake.read.topic_source import ClusterAddress, TopicSource
from lakelog.pipeline.spark.diagnosis import one_line, spark_failures, text_of
from lakelog.records.table_schema import TIMESTAMP_US_MAX
from lakelog.spark.batch_reader import RANGES, ddl_of, encode_ranges, warn_once
from lakelog.spark.parquet_scan import (
    FILE_DDL,
    FILE_OPTIONS,
    Division,
    NativeScan,
    as_rows,
    divided,
    everything,
    hadoop_place,
    holds,
    within,
)
from lakelog.spark.runtime import runtime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOKUPS_MAX: Final = 3
"""How often files that are gone already are looked up again."""

_CARRIED: Final = tuple(
    name.lower() for name in (SERVER, CONFIG, FAIL_ON_DATA_LOSS, MIN_PARTITIONS, MAX_RECORDS)
)
"""The options that the data source needs to read ranges."""


def read(
    spark: "SparkSession",
    topic: str | Sequence[str] | None = None,
    *,
    native: bool = True,
    **keywords: Unpack[ReadOptions],
) -> "DataFrame":
    """The rows that are there now, as a data frame, by the keywords of `lakelog.open`.

    Raises `BadOption` and `DataLoss`. `native`: whether Spark reads data files itself.
    """
    return pin(spark, topic, native=native, **keywords).frame()


def pin(
    spark: "SparkSession",
    topic: str | Sequence[str] | None = None,
    *,
    native: bool = True,
    **keywords: Unpack[ReadOptions],
) -> "PinnedRead":
    """A read of what is there now, which can be done at any time; raises as `read` does."""
    call = read_call(topic, **keywords)
    running = runtime()
    reached = running.reached(call.request.connection)
    found = running.call(running.source(reached).pin(call.request))
    warn_once((*call.request.notes, *found.notes))
    return PinnedRead(spark, call, native, reached, found)


@dataclass(frozen=True, slots=True)
class PinnedRead:
    """A read at one offset vector."""

    spark: "SparkSession"
    call: ParsedRead
    native: bool
    reached: ClusterAddress
    pinned: Pinned

    @property
    def vector(self) -> Mapping[PartitionName, tuple[int, int]]:
        """The offsets [start, end) of every partition."""
        return self.pinned.vector

    def frame(self) -> "DataFrame":
        """The rows, in the files that have them now; raises `DataLoss` if they are gone."""
        place = hadoop_place(self.reached.objects_url) if self.native else None
        found = None if place is None else self._native(place)
        return self._joined(everything(self._hinted()), "") if found is None else found

    def _native(self, place: str) -> "DataFrame | None":
        """The rows with Spark's own scan; None where it cannot read the store."""
        for _ in range(LOOKUPS_MAX):
            division = divided(self._hinted())
            try:
                found = self._joined(division, place)
                _ = found.schema  # Spark Connect looks at files not before it is asked for this
            except spark_failures() as error:
                said = text_of(error)
                if "PATH_NOT_FOUND" in said:
                    continue  # replaced and deleted since the index named it
                why = f"Spark cannot read {self.reached.objects_url} itself"
                warn_once((f"{why}, so that reading takes longer: {one_line(said)}",))
                return None
            else:
                return found
        return None

    def _hinted(self) -> list[PlannedRange]:
        """Where the rows are that fulfil the conditions."""
        filters = filters_of(self.call.conditions)
        ranges = pruned_ranges(self.pinned.ranges, filters)
        options = RowOptions(
            (), self.call.request.fail_on_data_loss, note=lambda note: warn_once((note,))
        )
        running = runtime()
        source: TopicSource = running.source(self.reached)
        hinted = running.call(source.hinted(ranges, options))
        return [part for one in hinted for part in pruned_entries(one, filters)]

    def _joined(self, division: Division, place: str) -> "DataFrame":
        frames = [one for scan in division.scans for one in self._scanned(scan, place)]
        if division.rest or not frames:
            frames.append(self._rest(division))
        found = reduce(lambda one, other: one.unionAll(other), frames)
        for condition in self.call.conditions:
            found = found.where(holds(condition))
        return found.select(*self.call.columns)

    def _wanted(self) -> tuple[str, ...]:
        named = (*self.call.columns, *(column for column, _, _ in self.call.conditions))
        return tuple(name for name in TYPES if name in named)

    def _scanned(self, scan: NativeScan, place: str) -> "list[DataFrame]":
        """The files of a topic, first those that are read whole."""
        reader = self.spark.read.schema(FILE_DDL).options(**FILE_OPTIONS)
        frames = []
        if scan.whole:
            frames.append(reader.parquet(*(place + key for key in scan.whole)))
        if scan.cut:
            cut = reader.parquet(*(place + key for key, _ in scan.cut))
            frames.append(cut.where(within([one for _, one in scan.cut])))
        since_us = filters_of(self.call.conditions).timestamp_start_us
        if since_us is not None:
            # Before timestamps are made exact, so that row groups can be skipped by it.
            least_us = min(since_us, TIMESTAMP_US_MAX)
            frames = [one.where(f"timestamp >= timestamp_micros({least_us})") for one in frames]
        return [one.select(*as_rows(self._wanted(), scan.topic)) for one in frames]

    def _rest(self, division: Division) -> "DataFrame":
        """What the data source reads."""
        ddl = ddl_of(self._wanted())
        if not division.rest:
            return self.spark.createDataFrame([], ddl)
        reader = self.spark.read.format("lakelog").schema(ddl)
        for name, text in self.call.options.items():
            if name.lower() in _CARRIED:
                reader = reader.option(name, text)
        names = ",".join(sorted({one.topic for one in division.rest}))
        ranges = encode_ranges(division.rest)
        return reader.option(SUBSCRIBE, names).option(RANGES, ranges).load()
