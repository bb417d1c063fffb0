"""The scan of log compaction on Spark: the latest offset of each key, then what stays of each file.

Keys are shuffled once, offsets twice, values never. A file's own keys are brought together before
Spark sees them, and come with one more row, a marker, which says how many rows the file has, which
of them have no key, or why it cannot be read: so every file that was planned comes back, also one
that nothing stays of. Whole keys are compared, by Spark as by us.

Rules: those of `lakelog.pipeline.spark.executor_job`; a file's trouble is a row, and a job that
failed as a whole is `Unavailable`. Only data frames are used, so that Spark Connect runs the same
job.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from lakelog import __version__
from lakelog.model.failures import Unavailable
from lakelog.pipeline.files.file_task import (
    BinOptions,
    FailureKind,
    FileFailure,
    TablePiece,
    pack,
)
from lakelog.pipeline.files.inputs import InputError
from lakelog.pipeline.maintenance.key_scan import (
    FileKeys,
    ScanAnswer,
    failure_of,
    read_file,
    survivors_of,
)
from lakelog.pipeline.maintenance.log_compaction import CleaningPlan, RetainedRows
from lakelog.pipeline.spark.executor_job import OtherVersionError, StoreAddress, runtime_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

KEY_ROW: Final = "plan int, marker int, key binary, row long, place int"
"""A key of the file `place` with its latest row there, twice its offset and one more if it goes;
`marker` is -1. Or the marker of the file, with the rest of what is known of it as the key.

Plain numbers, because Spark sorts where it is asked for the greatest of anything else; and files
are in order of offsets, so that the greatest row of a key lies in the last file that has it.
"""

FILE_ROW: Final = "plan int, place int, answer binary"
"""What stays of a file, or what is in the way."""

BATCH_ROWS: Final = 1 << 16


class SparkCalls(Protocol):
    """The engine, as far as a scan needs it."""

    @property
    def slots(self) -> int:
        """How many bins run at the same time."""

    @property
    def spark(self) -> "SparkSession":
        """The session; used within `call` alone."""

    async def call(self, work: Callable[[], T]) -> T:
        """Do on a thread what makes Spark run a job; cancelling ends it."""


class SparkScanner:
    """Scans files on the executors of an engine's session."""

    def __init__(self, engine: SparkCalls, address: StoreAddress) -> None:
        self._engine = engine
        self._address = address
        self.bins = BinOptions()

    async def scan(self, plans: Sequence[CleaningPlan]) -> Sequence[ScanAnswer]:
        """The answer to each plan, in order; `Unavailable` when the job as a whole failed."""
        files = [
            (number, place, piece.size_bytes)
            for number, plan in enumerate(plans)
            for place, piece in enumerate(plan.pieces)
        ]
        if not files:
            return [() for _ in plans]
        bins = pack([size for _, _, size in files], slots=self._engine.slots, options=self.bins)
        chosen = tuple(tuple(files[at][:2] for at in places) for places in bins)
        job = ScanJob(self._address, pickle.dumps(tuple(plans), protocol=5), chosen)
        rows = await self._engine.call(lambda: _collect(self._engine.spark, job))
        return _answers(plans, rows)


class _Found(NamedTuple):
    """A row of what comes back."""

    plan: int
    place: int
    answer: RetainedRows | FileFailure


@dataclass(frozen=True, slots=True)
class ScanJob:
    """Row number N of Spark's range is bin number N: files by plan and place within it."""

    address: StoreAddress
    plans: bytes
    bins: tuple[tuple[tuple[int, int], ...], ...]
    version: str = __version__

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """The keys of the files of these bins."""
        if self.version != __version__:
            raise OtherVersionError(
                f"the driver has lakelog {self.version} and this executor {__version__}:"
                " install the same version on both"
            )
        plans: tuple[CleaningPlan, ...] = pickle.loads(self.plans)  # noqa: S301 - our own driver
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for plan, place in self.bins[number]:
                    found = _read(self.address, plans[plan], plans[plan].pieces[place])
                    yield from _key_rows(plan, place, found)


def _read(address: StoreAddress, plan: CleaningPlan, piece: TablePiece) -> FileKeys | FileFailure:
    """The keys of one file; whatever goes wrong is an answer."""
    try:
        runtime = runtime_of(address)
        return runtime.run(read_file(runtime.objects, plan, piece, pool=runtime.pool))
    except InputError as error:
        return failure_of(plan, error)
    except Exception as error:  # noqa: BLE001 - a bug in one file must not end the others
        reason = f"{type(error).__name__}: {error}"
        trouble = InputError(FailureKind.UNAVAILABLE, reason, piece.key, piece.start, piece.end)
        return failure_of(plan, trouble)


def _key_rows(plan: int, place: int, found: FileKeys | FileFailure) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa  # noqa: PLC0415 - the driver makes jobs without it

    schema = _key_schema()
    rest = found if isinstance(found, FileFailure) else (found.row_count, found.alone)
    marker = pa.array([pickle.dumps(rest, protocol=5)], pa.binary())
    one = [[plan], [place], marker, [0], [place]]
    yield pa.RecordBatch.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(one, schema, strict=True)],
        schema=schema,
    )
    if isinstance(found, FileFailure):
        return
    keys = found.keys
    count = keys.num_rows
    rows = pa.Table.from_arrays(
        [
            pa.repeat(pa.scalar(plan, pa.int32()), count),
            pa.repeat(pa.scalar(-1, pa.int32()), count),
            keys["key"].cast(pa.binary()),
            pa.array(keys["offset"].to_numpy() * 2 + keys["goes"].to_numpy()),
            pa.repeat(pa.scalar(place, pa.int32()), count),
        ],
        schema=schema,
    )
    yield from rows.to_batches(max_chunksize=BATCH_ROWS)


def _key_schema() -> "pa.Schema":
    import pyarrow as pa  # noqa: PLC0415 - the driver makes jobs without it

    return pa.schema(
        [
            ("plan", pa.int32()),
            ("marker", pa.int32()),
            ("key", pa.binary()),
            ("row", pa.int64()),
            ("place", pa.int32()),
        ]
    )


def _collect(spark: "SparkSession", job: ScanJob) -> list[_Found]:
    count = len(job.bins)
    keys = spark.range(0, count, 1, count).mapInArrow(job, KEY_ROW)
    rows = _kept(keys).groupBy("plan", "place").applyInArrow(_file_row, FILE_ROW).collect()
    return [_Found(row[0], row[1], pickle.loads(bytes(row[2]))) for row in rows]  # noqa: S301 - ours


def _kept(keys: "DataFrame") -> "DataFrame":
    """The rows that stay, without their keys, and the markers."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only who uses Spark loads it

    latest = keys.groupBy("plan", "marker", "key").agg(
        f.max("row").alias("row"), f.max("place").alias("place")
    )
    rest = f.when(f.col("marker") >= 0, f.col("key")).alias("rest")
    return latest.where(f.col("row") % 2 == 0).select("plan", "place", "row", rest)


def _file_row(rows: "pa.Table") -> "pa.Table":
    """One row for a file: all rows that have its number."""
    import pyarrow as pa  # noqa: PLC0415 - the driver makes jobs without it

    is_marker = rows["rest"].is_valid()
    (rest,) = rows["rest"].filter(is_marker).to_pylist()
    found = pickle.loads(rest)  # noqa: S301 - from an executor that runs our code
    if not isinstance(found, FileFailure):
        row_count, alone = found
        latest = rows["row"].to_numpy()[~is_marker.to_numpy()] // 2
        found = survivors_of("", row_count=row_count, latest=latest, alone=alone)
    return pa.table(
        {
            "plan": pa.array(rows["plan"].to_numpy()[:1], pa.int32()),
            "place": pa.array(rows["place"].to_numpy()[:1], pa.int32()),
            "answer": pa.array([pickle.dumps(found, protocol=5)], pa.binary()),
        }
    )


def _answers(plans: Sequence[CleaningPlan], rows: Sequence[_Found]) -> list[ScanAnswer]:
    by_place = {(row.plan, row.place): row.answer for row in rows}
    asked = {(at, place) for at, plan in enumerate(plans) for place in range(len(plan.files))}
    if set(by_place) != asked or len(rows) != len(asked):
        raise Unavailable(f"Spark: {len(rows)} answers came back to {len(asked)} files")
    answers: list[ScanAnswer] = []
    for at, plan in enumerate(plans):
        of_plan = [by_place[at, place] for place in range(len(plan.files))]
        failures = [answer for answer in of_plan if isinstance(answer, FileFailure)]
        if failures:  # a file that cannot be read ends the scan of its plan alone
            answers.append(failures[0])
            continue
        answers.append(
            tuple(
                RetainedRows(piece.key, file.row_count, file.kept_count, file.kept_offsets)
                for piece, file in zip(plan.pieces, of_plan, strict=True)
                if isinstance(file, RetainedRows)
            )
        )
    return answers
