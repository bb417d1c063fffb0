"""The streams of a domain: one row each, found by id, and the columns that rows stand in. Pure.

A stream's id is never reused, so a dropped stream's row is simply dead; rows are packed again
when most of them are. `head` is the log end (exclusive), `log_start` the first readable offset.

`Columns` are numpy arrays of one length, doubled when full. Rows are only added at the end; a table
that drops rows makes new columns. The arrays are public because the callers compute on them;
`count` says how many rows are real.
"""

from collections.abc import Mapping
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lakelog.model.ids import TopicId

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FIRST_CAPACITY = 64

DEAD_ROWS_MIN: Final = 4096
"""A table is packed when more rows than this, and more than half of all, are dead."""


def is_mostly_dead(dead: int, count: int) -> bool:
    """Whether packing a table of `count` rows would pay: its cost is spread over as many rows."""
    return dead > DEAD_ROWS_MIN and dead * 2 > count


class Columns:
    """Named arrays that grow together."""

    __slots__ = ("arrays", "count")

    def __init__(self, kinds: Mapping[str, npt.DTypeLike], capacity: int = FIRST_CAPACITY) -> None:
        self.arrays: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(capacity, dtype=kind) for name, kind in kinds.items()
        }
        self.count = 0

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """The column's rows, without spare capacity; writing to it writes the column."""
        return self.arrays[name][: self.count]

    def extend(self, rows: int) -> int:
        """Add that many zeroed rows and return the number of the first."""
        first = self.count
        needed = first + rows
        capacity = len(next(iter(self.arrays.values())))
        if needed > capacity:
            grown = max(needed, capacity * 2)
            for name, array in self.arrays.items():
                larger = np.zeros((grown, *array.shape[1:]), dtype=array.dtype)
                larger[:first] = array[:first]
                self.arrays[name] = larger
        self.count = needed
        return first

    def reserve(self, rows: int) -> int:
        """Have room for that many more rows, and return the number of the first."""
        first = self.extend(rows)
        self.count = first
        return first

    def taken(self, rows: npt.NDArray[np.intp]) -> Self:
        """New columns with just these rows, in this order."""
        return self._of({name: array[rows] for name, array in self.arrays.items()}, len(rows))

    def copied(self) -> Self:
        """The same rows in memory of their own."""
        rows = {name: array[: self.count].copy() for name, array in self.arrays.items()}
        return self._of(rows, self.count)

    def _of(self, arrays: dict[str, npt.NDArray[Any]], count: int) -> Self:
        made = type(self).__new__(type(self))
        made.arrays, made.count = arrays, count
        if not count:  # array expressions may look at row 0 and then leave it out
            made.arrays = {
                name: np.zeros((FIRST_CAPACITY, *array.shape[1:]), dtype=array.dtype)
                for name, array in arrays.items()
            }
        return made


BUCKET_BITS: Final = 6
"""64 streams share a checkpoint page: a busy one drags few along, an idle domain has few pages."""

NONE: Final = -1
"""A row number that names no row."""

_KINDS: Final = {
    "id": np.int64,
    "partition": np.int32,
    "head": np.int64,
    "log_start": np.int64,
    "live_bytes": np.int64,  # record bytes of the entries that are left
    "gone_bytes": np.int64,  # record bytes of entries that were trimmed
    "entry": np.int64,  # the newest index entry's row, or NONE
    "producer": np.int64,  # the row of the producer that wrote last, or NONE
    "changed": np.int64,  # the position that changed the stream last
}


class StreamFacts(Struct, frozen=True, gc=False):
    """What a reader wants to know of one stream, at one moment."""

    stream: int
    topic: TopicId
    partition: int
    log_start: int
    head: int
    live_bytes: int


class StreamTable:
    """Rows of streams and the map from ids to rows."""

    __slots__ = ("_sorted_ids", "_sorted_rows", "columns", "removed", "row_of", "topics")

    def __init__(self) -> None:
        self.columns = Columns(_KINDS)
        self.row_of: dict[int, int] = {}
        self.topics: list[TopicId] = []
        self.removed: dict[int, int] = {}
        self._sorted_ids: Int64s | None = None
        self._sorted_rows: Int64s = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.row_of)

    def add(
        self, streams: list[int], *, topic: TopicId, first_partition: int, position: int
    ) -> None:
        """Make rows for streams that are not there yet; the others stay as they are."""
        for number, stream in enumerate(streams):
            if stream in self.row_of:
                continue
            row = self.columns.extend(1)
            arrays = self.columns.arrays
            arrays["id"][row] = stream
            arrays["partition"][row] = first_partition + number
            arrays["entry"][row] = NONE
            arrays["producer"][row] = NONE
            arrays["changed"][row] = position
            self.row_of[stream] = row
            self.topics.append(topic)
        self._sorted_ids = None

    def remove(self, stream: int, *, position: int) -> None:
        """Forget a stream; its row stays behind, dead, until the table is packed."""
        del self.row_of[stream]
        self.removed[stream >> BUCKET_BITS] = position
        self._sorted_ids = None

    def rows(self, streams: Int64s) -> Int64s:
        """The row of each stream, NONE for those unknown."""
        known, rows = self.sorted_rows()
        if not len(known):
            return np.full(len(streams), NONE, dtype=np.int64)
        places = np.minimum(np.searchsorted(known, streams), len(known) - 1)
        return np.where(known[places] == streams, rows[places], NONE)

    def sorted_rows(self) -> tuple[Int64s, Int64s]:
        """The ids of all streams there are, rising, and the row of each."""
        if self._sorted_ids is None:
            self._sort()
        assert self._sorted_ids is not None
        return self._sorted_ids, self._sorted_rows

    def log_starts(self, streams: Int64s) -> Int64s:
        """Where each stream starts, -1 for those unknown."""
        rows = self.rows(streams)
        return np.where(rows == NONE, -1, self.columns.arrays["log_start"][rows])

    def buckets(self) -> list[int]:
        """The buckets that have streams, rising."""
        ids = self.columns["id"][self.live_rows()]
        return [int(bucket) for bucket in np.unique(ids >> BUCKET_BITS)]

    def changed_buckets(self, *, since: int) -> set[int]:
        """Buckets of which a record after position `since` changed or removed a stream."""
        rows = self.live_rows()
        changed = rows[self.columns["changed"][rows] > since]
        removed = {bucket for bucket, position in self.removed.items() if position > since}
        return removed | set((self.columns["id"][changed] >> BUCKET_BITS).tolist())

    def live_rows(self) -> Int64s:
        """Rows of all streams there are, by rising stream id."""
        return self.sorted_rows()[1]

    def facts(self, stream: int) -> StreamFacts | None:
        """What is known of one stream, or None when it is unknown."""
        row = self.row_of.get(stream)
        if row is None:
            return None
        arrays = self.columns.arrays
        return StreamFacts(
            stream,
            self.topics[row],
            arrays["partition"].item(row),
            arrays["log_start"].item(row),
            arrays["head"].item(row),
            arrays["live_bytes"].item(row),
        )

    def marks(self, stream: int) -> tuple[int, int] | None:
        """Log start and head of one stream, or None when it is unknown."""
        row = self.row_of.get(stream)
        if row is None:
            return None
        arrays = self.columns.arrays
        return arrays["log_start"].item(row), arrays["head"].item(row)

    def empty_by_topic(self) -> dict[TopicId, list[int]]:
        """The streams that never held a record, by the topic they were made for."""
        rows = self.live_rows()
        found: dict[TopicId, list[int]] = {}
        for row in rows[self.columns["head"][rows] == 0].tolist():
            found.setdefault(self.topics[row], []).append(int(self.columns.arrays["id"][row]))
        return found

    def is_sparse(self) -> bool:
        """Whether packing would pay."""
        return is_mostly_dead(self.columns.count - len(self.row_of), self.columns.count)

    def pack(self) -> npt.NDArray[np.intp]:
        """Drop dead rows; returns the old row numbers in their new order."""
        kept = np.sort(self.live_rows()).astype(np.intp)
        self.columns = self.columns.taken(kept)
        self.topics = [self.topics[row] for row in kept]
        self.row_of = {int(stream): row for row, stream in enumerate(self.columns["id"])}
        self._sorted_ids = None
        # A bucket without streams has no page, so nobody asks any more when it lost its last one.
        present = set(self.buckets())
        self.removed = {
            bucket: position for bucket, position in self.removed.items() if bucket in present
        }
        return kept

    def copied(self) -> "StreamTable":
        """The same streams in memory of their own."""
        made = StreamTable()
        made.columns = self.columns.copied()
        made.row_of = dict(self.row_of)
        made.topics = list(self.topics)
        made.removed = dict(self.removed)
        return made

    def _sort(self) -> None:
        rows = np.fromiter(self.row_of.values(), dtype=np.int64, count=len(self.row_of))
        ids = self.columns.arrays["id"][rows]
        order = np.argsort(ids, kind="stable")
        self._sorted_ids = ids[order]
        self._sorted_rows = rows[order]
