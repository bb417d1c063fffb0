"""Many entries of a domain's index at once: as columns by stream, as ranges, by age. Pure.

Everything is computed on the index's arrays, without a loop over entries: a broker does it on its
own loop, between requests. A row number means nothing any more once the next record is applied, so
what is returned here are copies, and names instead of rows.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lakelog.domain.state import DomainState
from lakelog.index.ports import StreamColumns, StreamIndex
from lakelog.model.ids import WalId
from lakelog.streams.objects import FileKind, FileName, ObjectName, WalName
from lakelog.streams.table import NONE, Bools, Int64s

WAL_ID_TIME_SHIFT: Final = 16
"""A WAL id begins with 48 bits of milliseconds; the table has its first 64 bits as a number."""

WAL_ID_BYTES: Final = 16
NO_TIME: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """The entries of some streams, sorted by stream row and offset; a stream's stand together."""

    stream_rows: Int64s
    """The streams asked for, by row, in the order asked for."""
    entry_rows: Int64s
    starts: Int64s
    ends: Int64s
    firsts: Int64s
    """Where each stream's entries begin in the columns, in the order of `stream_rows`."""
    stops: Int64s


def entry_counts(state: DomainState, streams: Int64s, *, of_wal: bool) -> Int64s:
    """How many entries each stream has, or how many in WAL objects; -1 for one that is gone."""
    rows = state.streams.rows(streams)
    count = state.streams.columns.count
    owners = state.index.columns["stream"]
    live = owners != NONE
    if of_wal:
        live &= state.objects.columns["kind"][state.index.columns["object"]] == FileKind.WAL
    totals = np.bincount(owners[live], minlength=max(count, 1))
    return np.where(rows == NONE, NONE, totals[rows]).astype(np.int64)


def gather(state: DomainState, streams: Int64s) -> Gathered:
    """The entries of these streams, all of which exist."""
    rows = state.streams.rows(streams)
    assert bool((rows != NONE).all()), "a stream that is gone has no entries to gather"
    columns = state.index.columns
    found = _entries_of(state, rows)
    order = np.lexsort((columns["start"][found], columns["stream"][found]))
    found = found[order]
    owners = columns["stream"][found].astype(np.int64)
    return Gathered(
        stream_rows=rows,
        entry_rows=found.astype(np.int64),
        starts=columns["start"][found],
        ends=columns["end"][found],
        firsts=np.searchsorted(owners, rows, side="left").astype(np.int64),
        stops=np.searchsorted(owners, rows, side="right").astype(np.int64),
    )


def stream_indexes(
    state: DomainState, streams: Int64s, *, backlog_only: bool
) -> dict[int, StreamIndex]:
    """The entries of each stream; for the backlog, from the last one before the WAL on.

    A stream without entries in WAL objects has no backlog and is left out of it.
    """
    found = gather(state, streams)
    objects = state.index.columns["object"][found.entry_rows]
    kinds = state.objects.columns["kind"][objects].astype(np.int64)
    byte_lengths = state.index.columns["byte_length"][found.entry_rows]
    times_ms = _times_ms(state, objects)
    firsts = _backlog_firsts(found, kinds == FileKind.WAL) if backlog_only else found.firsts
    log_starts = state.streams.columns["log_start"][found.stream_rows].tolist()
    heads = state.streams.columns["head"][found.stream_rows].tolist()
    indexes = {}
    places = zip(streams.tolist(), firsts.tolist(), found.stops.tolist(), strict=True)
    for number, (stream, first, stop) in enumerate(places):
        if backlog_only and first == stop:
            continue
        part = slice(first, stop)
        indexes[stream] = StreamIndex(
            log_start=log_starts[number],
            head=heads[number],
            columns=StreamColumns(
                starts=found.starts[part],
                ends=found.ends[part],
                kinds=kinds[part],
                byte_lengths=byte_lengths[part],
                object_times_ms=times_ms[part],
            ),
        )
    return indexes


def oldest_wal_ms(state: DomainState, streams: Int64s) -> Int64s:
    """When each stream's oldest WAL object was closed; `NO_TIME` for none or a stream gone."""
    rows = state.streams.rows(streams)
    found = _entries_of(state, rows[rows != NONE])
    found = found[
        state.objects.columns["kind"][state.index.columns["object"][found]] == FileKind.WAL
    ]
    oldest = np.full(state.streams.columns.count + 1, NO_TIME, dtype=np.int64)
    times_ms = _times_ms(state, state.index.columns["object"][found])
    np.minimum.at(oldest, state.index.columns["stream"][found], times_ms)
    return oldest[rows]  # NONE finds the last one, which nobody owns


def file_keys(state: DomainState) -> list[str]:
    """The keys of all segments and data files that entries name."""
    named = np.zeros(state.objects.columns.count, dtype=np.bool_)
    owners = state.index.columns["stream"]
    named[state.index.columns["object"][owners != NONE]] = True
    named &= state.objects.columns["kind"] != FileKind.WAL
    return [state.objects.keys[row] for row in np.flatnonzero(named).tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class EntryTable:
    """Some entries of one stream with what they name, taken out of the state."""

    starts: Int64s
    ends: Int64s
    byte_starts: Int64s
    byte_lengths: Int64s
    max_timestamps_ms: Int64s
    kinds: npt.NDArray[np.int8]
    wal_ids: bytes
    zones: Int64s
    zone_names: tuple[str, ...]
    keys: dict[int, str]
    """The keys of those that are in no WAL object, by their number in the table."""

    def name(self, number: int) -> ObjectName:
        """The object of that entry."""
        key = self.keys.get(number)
        if key is not None:
            return FileName(FileKind(int(self.kinds[number])), key)
        at = number * WAL_ID_BYTES
        wal_id = WalId(self.wal_ids[at : at + WAL_ID_BYTES])
        return WalName(wal_id, self.zone_names[self.zones[number]])


def entry_table(state: DomainState, entry_rows: Int64s) -> EntryTable:
    """These entries as values that stay true."""
    columns = state.index.columns
    rows = columns["object"][entry_rows]
    objects = state.objects.columns
    kinds = objects["kind"][rows]
    halves: npt.NDArray[Any] = np.empty((len(rows), 2), dtype=">u8")
    halves[:, 0] = objects["high"][rows]
    halves[:, 1] = objects["low"][rows]
    files = np.flatnonzero(kinds != FileKind.WAL).tolist()
    return EntryTable(
        starts=columns["start"][entry_rows],
        ends=columns["end"][entry_rows],
        byte_starts=columns["byte_start"][entry_rows],
        byte_lengths=columns["byte_length"][entry_rows],
        max_timestamps_ms=columns["max_timestamp"][entry_rows],
        kinds=kinds,
        wal_ids=halves.tobytes(),
        zones=objects["zone"][rows].astype(np.int64),
        zone_names=tuple(state.objects.zones),
        keys={number: state.objects.keys[int(rows[number])] for number in files},
    )


def _entries_of(state: DomainState, stream_rows: Int64s) -> npt.NDArray[np.intp]:
    """The rows of all entries of these streams, in no order that means something."""
    wanted = np.zeros(state.streams.columns.count + 1, dtype=np.bool_)
    wanted[stream_rows] = True
    # The last one is of no stream: the owner of a dead entry is NONE, which finds it.
    return np.flatnonzero(wanted[state.index.columns["stream"]])


def _times_ms(state: DomainState, objects: npt.NDArray[np.int32]) -> Int64s:
    high = state.objects.columns["high"][objects]
    return (high >> np.uint64(WAL_ID_TIME_SHIFT)).astype(np.int64)


def _backlog_firsts(found: Gathered, is_wal: Bools) -> Int64s:
    """For each stream, the entry before its first one in WAL; its stop when there is none."""
    places = np.flatnonzero(is_wal)
    at = np.searchsorted(places, found.firsts, side="left")
    padded = np.append(places, len(is_wal))
    first_wal = np.minimum(padded[at], found.stops)
    has_wal = first_wal < found.stops
    return np.where(has_wal, np.maximum(first_wal - 1, found.firsts), found.stops)
