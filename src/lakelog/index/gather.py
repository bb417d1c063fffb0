"""Many entries of a domain's index at once: as columns by stream, as ranges, by age. Pure.

Everything is computed on the index's arrays, without a loop over entries: a broker does it on its
own loop, between requests. A row number means nothing any more once the next record is applied, so
what is returned here are copies, and names instead of rows. `describe` shows a partition's entries
to people; its keys are not stored, they only name what is part of the domain's state.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np
import numpy.typing as npt

from lakelog.domain.state import DomainState
from lakelog.index.entries import (
    Entries,
    LocatedRange,
    StreamColumns,
    StreamIndex,
    no_entries,
)
from lakelog.index.ports import StreamRange
from lakelog.log.plan import Piece
from lakelog.meta.keys import ROOT
from lakelog.model.ids import DomainId
from lakelog.streams.objects import FileKind, FileName, WalName
from lakelog.streams.table import NONE, Bools, Int64s
from lakelog.wal.layout import WAL_ID_BYTES, object_key

WAL_ID_TIME_SHIFT: Final = 16
"""A WAL id begins with 48 bits of milliseconds; the table has its first 64 bits as a number."""

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


def locate(
    state: DomainState, domain: int, ranges: Sequence[StreamRange], *, entries_max: int | None
) -> list[LocatedRange]:
    """Where each range lies, by its first so many entries; all their streams exist."""
    owners = np.array([wanted.stream for wanted in ranges], dtype=np.int64)
    streams, places = np.unique(owners, return_inverse=True)
    found = gather(state, streams)
    return [
        _located(state, domain, found, place, wanted, entries_max)
        for place, wanted in zip(places.reshape(-1).tolist(), ranges, strict=True)
    ]


def _located(
    state: DomainState,
    domain: int,
    found: Gathered,
    place: int,
    wanted: StreamRange,
    entries_max: int | None,
) -> LocatedRange:
    """The entries of one range out of those gathered; `place` is that of its stream."""
    first, stop = int(found.firsts[place]), int(found.stops[place])
    begin = first + int(np.searchsorted(found.ends[first:stop], wanted.start, side="right"))
    end = first + int(np.searchsorted(found.starts[first:stop], wanted.end, side="left"))
    if entries_max is not None:
        end = min(end, begin + entries_max)
    columns = state.streams.columns.arrays
    stream_row = int(found.stream_rows[place])
    head = int(columns["head"][stream_row])
    return LocatedRange(
        log_start=int(columns["log_start"][stream_row]),
        first_start=int(found.starts[first]) if first < stop else head,
        head=head,
        entries=(
            entries_at(state, domain, found.entry_rows[begin:end])
            if begin < end
            else no_entries(domain, head)
        ),
    )


def entries_at(state: DomainState, domain: int, entry_rows: Int64s) -> Entries:
    """The entries in these rows, which are neighbours of one stream, as values that stay true."""
    columns = state.index.columns
    starts, ends = columns["start"][entry_rows], columns["end"][entry_rows]
    assert np.array_equal(starts[1:], ends[:-1]), "the entries of a stream tile it (L4)"
    objects = columns["object"][entry_rows]
    named = state.objects.columns
    kinds = named["kind"][objects]
    halves: npt.NDArray[Any] = np.empty((len(objects), 2), dtype=">u8")
    halves[:, 0] = named["high"][objects]
    halves[:, 1] = named["low"][objects]
    labels = named["zone"][objects].astype(np.int32)
    names = list(state.objects.zones)
    for number in np.flatnonzero(kinds != FileKind.WAL).tolist():
        labels[number] = len(names)
        names.append(state.objects.keys[int(objects[number])])
    return Entries(
        domain,
        np.append(starts, ends[-1]),
        kinds.astype(np.uint8),
        columns["byte_start"][entry_rows],
        columns["byte_length"][entry_rows],
        columns["max_timestamp"][entry_rows],
        halves.view(np.uint8).reshape(-1, WAL_ID_BYTES),
        labels,
        tuple(names),
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


def describe(stream: int, domain: int, pieces: Sequence[Piece]) -> list[dict[str, object]]:
    """One row for each index entry, in the order of the offsets."""
    rows = []
    prefix = f"{ROOT}/streams/{stream}/offset-index"
    size_bytes = 0
    for piece in pieces:
        size_bytes += piece.byte_length
        rows.append(
            {
                "key": f"{prefix}/{piece.end:020d}/{size_bytes:020d}",
                "streamId": stream,
                "startOffset": piece.start,
                "endOffset": piece.end,
                "cumulativeSize": size_bytes,
                "recordCount": piece.end - piece.start,
                "maxTimestampMs": piece.max_timestamp_ms,
                "chunkOffset": piece.byte_start,
                "chunkLength": piece.byte_length,
                **_file(piece, DomainId(domain)),
            }
        )
    return rows


def _file(piece: Piece, domain: DomainId) -> dict[str, object]:
    match piece.name:
        case WalName(wal_id=wal_id, zone=zone):
            return {
                "fileType": "WAL",
                "walId": str(UUID(bytes=bytes(wal_id))),
                "path": object_key(zone, domain, wal_id),
            }
        case FileName(kind=kind, key=key):
            return {"fileType": kind.name, "path": key}
