"""The offset index: which bytes of which object hold an offset. Pure.

An entry maps the offsets [start, end) of a stream to one run of bytes of one object. Entries of a
stream tile [log start, head) (L4), except that the first may begin before the log start. An entry
names only accepted batches: where `apply` refused one in the middle of a chunk, there are two
entries with a gap of bytes between them.

Every entry knows the one before it in its stream, so adding entries for thousands of streams is a
few array operations. Reading near the end walks that chain; reading further back makes a sorted
view of the stream once and extends it as the stream grows.
"""

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lakelog.streams.table import NONE, Bools, Columns, Int64s, StreamTable, is_mostly_dead

TAIL_STEPS_MAX: Final = 16
"""How far back a read follows the chain before it makes a view of the whole stream."""

_KINDS: Final = {
    "stream": np.int32,  # the stream's row
    "start": np.int64,
    "end": np.int64,
    "object": np.int32,  # the object's row
    "byte_start": np.int64,
    "byte_length": np.int64,
    "max_timestamp": np.int64,
    "previous": np.int64,
}
_ROW_BYTES: Final = sum(np.dtype(kind).itemsize for kind in _KINDS.values())
_VIEW_ENTRY_BYTES: Final = 16
"""What an entry takes in a view: its row and its end."""


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One run of bytes that holds the offsets [start, end), its object by row."""

    start: int
    end: int
    object_row: int
    byte_start: int
    byte_length: int
    max_timestamp_ms: int


class _View:
    """The rows of one stream in order of offsets; `first` skips what was trimmed."""

    __slots__ = ("ends", "first", "rows")

    def __init__(self) -> None:
        self.rows = array("q")
        self.ends = array("q")
        self.first = 0


class Index:
    """All entries of a domain."""

    __slots__ = ("_view_entries", "_views", "columns", "dead")

    def __init__(self) -> None:
        self.columns = Columns(_KINDS)
        self.dead = 0
        self._views: dict[int, _View] = {}
        self._view_entries = 0

    def append(self, streams: StreamTable, entries: dict[str, Int64s], *, heads: Bools) -> None:
        """Add entries at their streams' ends, in order; `heads` marks the first of each stream.

        `entries` holds one array for every column but `previous`; entries of one stream stand
        together.
        """
        count = len(heads)
        first = self.columns.extend(count)
        rows = np.arange(first, first + count, dtype=np.int64)
        arrays = self.columns.arrays
        for name, values in entries.items():
            arrays[name][first : first + count] = values
        stream_rows = entries["stream"]
        newest = streams.columns.arrays["entry"]
        arrays["previous"][first : first + count] = np.where(heads, newest[stream_rows], rows - 1)
        tails = np.append(heads[1:], True)
        newest[stream_rows[tails]] = rows[tails]

    def append_one(self, streams: StreamTable, row: int, entry: EntryRow) -> None:
        """Add one entry at the end of the stream in that row."""
        made = self.columns.extend(1)
        arrays = self.columns.arrays
        newest = streams.columns.arrays["entry"]
        arrays["stream"][made] = row
        arrays["start"][made] = entry.start
        arrays["end"][made] = entry.end
        arrays["object"][made] = entry.object_row
        arrays["byte_start"][made] = entry.byte_start
        arrays["byte_length"][made] = entry.byte_length
        arrays["max_timestamp"][made] = entry.max_timestamp_ms
        arrays["previous"][made] = newest[row]
        newest[row] = made

    def find(self, streams: StreamTable, row: int, offset: int) -> int:
        """The entry that holds `offset` of the stream in that row, NONE beyond the last one.

        An offset below the first entry finds the first entry.
        """
        newest = int(streams.columns.arrays["entry"][row])
        if newest == NONE or offset >= int(self.columns.arrays["end"][newest]):
            return NONE
        starts, previous = self.columns.arrays["start"], self.columns.arrays["previous"]
        here = newest
        for _ in range(TAIL_STEPS_MAX):
            before = int(previous[here])
            if offset >= int(starts[here]) or before == NONE:
                return here
            here = before
        view = self._view(newest, row)
        return view.rows[bisect_right(view.ends, offset, view.first)]

    def rows(self, streams: StreamTable, row: int) -> Int64s:
        """All entries of the stream in that row, in order."""
        newest = int(streams.columns.arrays["entry"][row])
        if newest == NONE:
            return np.zeros(0, dtype=np.int64)
        view = self._view(newest, row)
        return np.array(view.rows[view.first :], dtype=np.int64)

    def following(self, streams: StreamTable, row: int, entry_row: int, limit: int) -> list[int]:
        """The entry given and those after it, at most `limit` of them."""
        newest = int(streams.columns.arrays["entry"][row])
        if entry_row == newest:
            return [newest]
        previous = self.columns.arrays["previous"]
        chain = [newest]
        for _ in range(TAIL_STEPS_MAX):
            chain.append(int(previous[chain[-1]]))
            if chain[-1] == entry_row:
                return chain[::-1][:limit]
        view = self._view(newest, row)
        end = int(self.columns.arrays["end"][entry_row])
        place = bisect_right(view.ends, end - 1, view.first)
        return list(view.rows[place : place + limit])

    def entry(self, row: int) -> EntryRow:
        """The entry of that row as a value."""
        arrays = self.columns.arrays
        return EntryRow(
            start=int(arrays["start"][row]),
            end=int(arrays["end"][row]),
            object_row=int(arrays["object"][row]),
            byte_start=int(arrays["byte_start"][row]),
            byte_length=int(arrays["byte_length"][row]),
            max_timestamp_ms=int(arrays["max_timestamp"][row]),
        )

    def trim(self, streams: StreamTable, row: int, offset: int) -> int:
        """Drop entries that end at or below `offset`; returns the record bytes they held."""
        newest = int(streams.columns.arrays["entry"][row])
        if newest == NONE:
            return 0
        view = self._view(newest, row)
        kept = bisect_right(view.ends, offset, view.first)
        gone = np.array(view.rows[view.first : kept], dtype=np.int64)
        if not len(gone):
            return 0
        arrays = self.columns.arrays
        arrays["stream"][gone] = NONE
        self.dead += len(gone)
        if kept == len(view.rows):
            streams.columns.arrays["entry"][row] = NONE
            self._forget_view(row)
        else:
            arrays["previous"][view.rows[kept]] = NONE
            view.first = kept
        return int(arrays["byte_length"][gone].sum())

    def replace(self, streams: StreamTable, row: int, old: Int64s, new: dict[str, int]) -> None:
        """Put one entry in the place of the adjoining entries `old` (a Swap)."""
        arrays = self.columns.arrays
        before = int(arrays["previous"][old[0]])
        newest = int(streams.columns.arrays["entry"][row])
        made = self.columns.extend(1)
        arrays = self.columns.arrays
        for name, value in new.items():
            arrays[name][made] = value
        arrays["previous"][made] = before
        if newest == int(old[-1]):
            streams.columns.arrays["entry"][row] = made
        else:
            ordered = self.rows(streams, row)
            follower = ordered[int(np.flatnonzero(ordered == old[-1])[0]) + 1]
            arrays["previous"][follower] = made
        arrays["stream"][old] = NONE
        self.dead += len(old)
        self._forget_view(row)

    def held_bytes(self) -> int:
        """What the entries take in memory, dead ones and the views of streams included.

        Spare capacity of the columns was never touched, so it takes nothing.
        """
        return _ROW_BYTES * self.columns.count + _VIEW_ENTRY_BYTES * self._view_entries

    def referenced(self) -> Int64s:
        """Rows of the objects that entries name, each once, rising."""
        live = self.columns["stream"] != NONE
        return np.unique(self.columns["object"][live]).astype(np.int64)

    def is_sparse(self) -> bool:
        """Whether packing would pay."""
        return is_mostly_dead(self.dead, self.columns.count)

    def pack(self, streams: StreamTable, new_stream_rows: Int64s, new_object_rows: Int64s) -> None:
        """Drop dead entries and lay out the others by stream; both tables were renumbered.

        The arrays map old row numbers to new ones; stream rows must be packed already.
        """
        live = np.flatnonzero(self.columns["stream"] != NONE)
        stream_rows = new_stream_rows[self.columns["stream"][live]]
        order = np.lexsort((self.columns["start"][live], stream_rows))
        self.columns = self.columns.taken(live[order])
        self.dead = 0
        self._views = {}
        self._view_entries = 0
        rows_of_stream = stream_rows[order]
        self.columns["stream"][:] = rows_of_stream
        self.columns["object"][:] = new_object_rows[self.columns["object"]]
        link(self.columns, streams, rows_of_stream)

    def copied(self) -> "Index":
        """The same entries in memory of their own."""
        made = Index()
        made.columns = self.columns.copied()
        made.dead = self.dead
        return made

    def _view(self, newest: int, row: int) -> _View:
        view = self._views.get(row)
        if view is None:
            view = self._views[row] = _View()
        known = view.rows[-1] if view.rows else NONE
        if known == newest:
            return view
        previous, ends = self.columns.arrays["previous"], self.columns.arrays["end"]
        fresh = array("q")
        here = newest
        while here != known:
            fresh.append(here)
            here = int(previous[here])
        fresh.reverse()
        self._view_entries += len(fresh)
        view.rows.extend(fresh)
        view.ends.extend(ends[np.frombuffer(fresh, dtype=np.int64)].tolist())
        return view

    def _forget_view(self, row: int) -> None:
        view = self._views.pop(row, None)
        if view is not None:
            self._view_entries -= len(view.rows)


def link(columns: Columns, streams: StreamTable, stream_rows: npt.NDArray[np.int64]) -> None:
    """Chain entries that stand in order of stream and offset, and note each stream's newest."""
    count = columns.count
    newest = streams.columns.arrays["entry"]
    newest[: streams.columns.count] = NONE
    if not count:
        return
    heads = np.append(True, stream_rows[1:] != stream_rows[:-1])
    rows = np.arange(count, dtype=np.int64)
    columns["previous"][:] = np.where(heads, NONE, rows - 1)
    tails = np.append(heads[1:], True)
    newest[stream_rows[tails]] = rows[tails]
