"""The scan of a cleaning pass in this process: which rows of each file stay.

Only offsets and keys are decoded, and values where tombstones may have to go: whether one is null
is all that is asked. Memory is bounded by the keys that differ, not by the rows. The decision for a
row (`read_keys`) is shared with the engine that scans on many machines.
"""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np

from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.file_task import FailureKind, FileFailure, TablePiece, pack_offsets
from lakelog.pipeline.files.inputs import (
    InputError,
    RowGroupData,
    StreamIdentity,
    feed_groups,
    run_in,
)
from lakelog.pipeline.maintenance.log_compaction import CleaningPlan, RetainedRows
from lakelog.streams.table import Int64s

if TYPE_CHECKING:
    import pyarrow as pa

ScanAnswer: TypeAlias = tuple[RetainedRows, ...] | FileFailure
"""The files of a plan in order, or what is in the way of its scan."""

MERGE_ROWS: Final = 1 << 20
"""Keys are brought together when so many rows have come, at the least."""


class Scanner(Protocol):
    """Whoever can scan: the part of an engine that log compaction needs."""

    async def scan(self, plans: Sequence[CleaningPlan]) -> Sequence[ScanAnswer]:
        """The answer to each plan, in order; `Unavailable` when the engine itself failed."""


def source_of(plan: CleaningPlan) -> StreamIdentity:
    """The stream whose files the plan names."""
    name = plan.name
    return StreamIdentity(name.stream, bytes(name.topic_id), name.partition)


def failure_of(plan: CleaningPlan, error: InputError) -> FileFailure:
    """What is in the way, as the answer to a plan."""
    return error.answer(f"{plan.name.stream}-clean", "")


async def scan(
    objects: ObjectStore, plan: CleaningPlan, *, pool: Executor | None = None
) -> ScanAnswer:
    """The rows that stay, file by file; a file that cannot be read is an answer."""
    keys = _Keys(plan, plan.pieces)
    try:
        await feed_groups(objects, source_of(plan), plan.pieces, keys.add, pool=pool)
        return await run_in(pool, keys.retained)
    except InputError as error:
        return failure_of(plan, error)


@dataclass(frozen=True, slots=True)
class FileKeys:
    """What a scan has to know of one file."""

    row_count: int
    keys: "pa.Table"
    """Every key once: `key`, its latest `offset`, and whether that row `goes` as a tombstone."""
    alone: Int64s
    """The offsets of rows without a key."""


async def read_file(
    objects: ObjectStore, plan: CleaningPlan, piece: TablePiece, *, pool: Executor | None = None
) -> FileKeys:
    """The keys of one file of a plan; raises `InputError`."""
    keys = _Keys(plan, [piece])
    await feed_groups(objects, source_of(plan), [piece], keys.add, pool=pool)
    return await run_in(pool, keys.of_file)


def survivors_of(key: str, *, row_count: int, latest: Int64s, alone: Int64s) -> RetainedRows:
    """The rows of a file that stay: the latest of their keys, and those without one."""
    kept_offsets = np.sort(np.concatenate([latest, alone]))
    return RetainedRows(key, row_count, len(kept_offsets), pack_offsets(kept_offsets))


def needs_values(plan: CleaningPlan, piece: TablePiece) -> bool:
    """Whether tombstones of this file may have to go, so that values are looked at."""
    return piece.start < plan.tombstones_end and piece.end > plan.tombstones_gone


def read_keys(plan: CleaningPlan, group: RowGroupData, *, reached: int) -> "pa.Table":
    """Key, offset and `goes` (a tombstone whose time is over) of every row of a row group.

    `reached` is the offset behind the rows before it. Raises `InputError`.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    looks = needs_values(plan, group.piece)
    rows = group.rows(("offset", "key", "value") if looks else ("offset", "key"))
    offsets = rows["offset"].to_numpy()
    if offsets[0] < reached:
        piece = group.piece
        reason = f"rows of {piece.key} begin at {offsets[0]}, others reach to {reached}"
        raise InputError(FailureKind.CORRUPT, reason, piece.key, piece.start, piece.end)
    goes = np.zeros(len(offsets), np.bool_)
    if looks:
        null = rows["value"].is_null().to_numpy()
        keyed = rows["key"].is_valid().to_numpy()
        goes = null & keyed & (offsets < plan.tombstones_end)
    return pa.table({"key": rows["key"], "offset": rows["offset"], "goes": pa.array(goes)})


class _Keys:
    """The latest offset of each key so far, and the offsets of rows without a key."""

    def __init__(self, plan: CleaningPlan, pieces: Sequence[TablePiece]) -> None:
        self._plan = plan
        self._pieces = pieces
        self._reached = -1
        self._held: list[pa.Table] = []
        self._new_rows = 0
        self._alone = [np.zeros(0, np.int64)]
        self._going = [np.zeros(0, np.int64)]
        self._row_counts = {piece.key: 0 for piece in pieces}

    def add(self, group: RowGroupData) -> None:
        """Take in the rows of a row group."""
        rows = read_keys(self._plan, group, reached=self._reached)
        offsets = rows["offset"].to_numpy()
        self._reached = offsets.item(-1) + 1
        self._row_counts[group.piece.key] += len(offsets)
        self._going.append(offsets[rows["goes"].to_numpy()])
        keyed = rows["key"].is_valid()
        self._alone.append(offsets[~keyed.to_numpy()])
        self._held.append(rows.select(("key", "offset")).filter(keyed))
        self._new_rows += len(offsets)
        # At least as many as there are keys, so that many keys do not cost their square.
        if self._new_rows >= max(MERGE_ROWS, self._held[0].num_rows):
            self._held, self._new_rows = [_latest(self._held)], 0

    def of_file(self) -> FileKeys:
        """All that was taken in, of one file."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

        (row_count,) = self._row_counts.values()
        keys = _latest(self._held)
        goes = np.isin(keys["offset"].to_numpy(), np.concatenate(self._going))
        keys = keys.append_column("goes", pa.array(goes, pa.bool_()))
        return FileKeys(row_count, keys, np.concatenate(self._alone))

    def retained(self) -> tuple[RetainedRows, ...]:
        """What stays of each file, of all that were taken in."""
        latest = np.sort(_latest(self._held)["offset"].to_numpy())
        latest = np.setdiff1d(latest, np.concatenate(self._going), assume_unique=True)
        alone = np.concatenate(self._alone)
        found = []
        done = alone_done = 0
        for piece in self._pieces:
            end = int(np.searchsorted(latest, piece.end))
            alone_end = int(np.searchsorted(alone, piece.end))
            found.append(
                survivors_of(
                    piece.key,
                    row_count=self._row_counts[piece.key],
                    latest=latest[done:end],
                    alone=alone[alone_done:alone_end],
                )
            )
            done, alone_done = end, alone_end
        return tuple(found)


def _latest(tables: "Sequence[pa.Table]") -> "pa.Table":
    """Each key once, with its greatest offset."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    if not tables:
        kinds = [("key", pa.large_binary()), ("offset", pa.int64())]
        return pa.schema(kinds).empty_table()
    joined = pa.concat_tables(tables)
    # Five times as fast as grouping, and whole keys are compared all the same.
    keys = joined["key"].combine_chunks().dictionary_encode()
    latest = np.full(len(keys.dictionary), -1, np.int64)
    np.maximum.at(latest, keys.indices.to_numpy(), joined["offset"].to_numpy())
    return pa.table({"key": keys.dictionary, "offset": pa.array(latest)})
