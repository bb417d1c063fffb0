"""Windows of idempotent producers: the last five batches per stream and producer. Pure.

A batch is judged against its producer's window: in sequence, a duplicate of one of the last five,
or out of place. The columns serve the common case (a stream's last writer writes on) for
thousands of streams at once; everything else goes row by row. Both must leave the same state
(B4); a test compares them.

A window is a ring: `newest` is the place of the newest batch in it. A batch of count 0 is none.

A producer id unknown on a stream must begin at sequence 0, unless it is so old that its state may
have expired (rule 22): `expired_max` is the greatest id that was ever forgotten.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lakelog.streams.table import NONE, Columns, Int64s, is_mostly_dead

WINDOW_BATCHES: Final = 5
"""Kafka clients have at most five requests in flight, so a retry is among the last five."""

SEQUENCE_END: Final = 1 << 31
"""Sequences count 0 … 2^31 - 1 and begin again."""

BATCH_FIELDS: Final = ("first", "count", "offset", "timestamp_ms")
"""The columns of a window, one five-batch row a producer."""

PRODUCER_BYTES: Final = 400
"""What a row costs in memory, at the most (measured: 290 to 370, as the dict of rows grows)."""

_KINDS: Final = {
    "stream": np.int32,  # the stream's row, NONE when dead
    "producer": np.int64,
    "epoch": np.int16,
    "next": np.int64,  # the sequence expected next
    "newest": np.int8,
    "time_ms": np.int64,  # of the newest WAL object it wrote to
}


@dataclass(frozen=True, slots=True)
class Batch:
    """One remembered batch: its sequences [first, first + count) and where it landed."""

    first: int
    count: int
    offset: int
    timestamp_ms: int


def advanced(sequence: int, count: int) -> int:
    """The sequence `count` records later; after 2^31 - 1 comes 0 (D3)."""
    return (sequence + count) % SEQUENCE_END


class ProducerTable:
    """Rows of windows, found by stream row and producer id."""

    __slots__ = ("_free", "columns", "expired_max", "row_of", "windows")

    def __init__(self) -> None:
        self.columns = Columns(_KINDS)
        self.windows = Columns(
            {field: np.dtype((np.int64, WINDOW_BATCHES)) for field in BATCH_FIELDS}
        )
        self.row_of: dict[int, int] = {}
        self.expired_max = -1
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.row_of)

    @property
    def size_bytes(self) -> int:
        """What the rows cost in memory, about."""
        return len(self.row_of) * PRODUCER_BYTES

    def row(self, stream_row: int, producer: int) -> int:
        """The row of that producer on that stream, or NONE."""
        return self.row_of.get(_key(stream_row, producer), NONE)

    def epoch(self, row: int) -> int:
        """The producer's epoch."""
        return int(self.columns.arrays["epoch"][row])

    def expected(self, row: int) -> int:
        """The sequence that goes on where the producer's newest batch ends."""
        return int(self.columns.arrays["next"][row])

    def window(self, row: int) -> tuple[Batch, ...]:
        """The batches remembered, the oldest first."""
        fields = [self.windows.arrays[name][row].tolist() for name in BATCH_FIELDS]
        batches = [Batch(*values) for values in zip(*fields, strict=True)]
        oldest = int(self.columns.arrays["newest"][row]) + 1
        return tuple(batch for batch in batches[oldest:] + batches[:oldest] if batch.count)

    def accept(
        self, stream_row: int, producer: int, epoch: int, batch: Batch, *, time_ms: int
    ) -> int:
        """Remember a batch that was accepted, and return the producer's row."""
        key = _key(stream_row, producer)
        row = self.row_of.get(key, NONE)
        if row == NONE:
            row = self.row_of[key] = self._claimed(stream_row, producer)
        arrays, windows = self.columns.arrays, self.windows.arrays
        if int(arrays["epoch"][row]) != epoch:
            arrays["epoch"][row] = epoch
            windows["count"][row] = 0  # batches of an older epoch are no duplicates of newer ones
        place = (int(arrays["newest"][row]) + 1) % WINDOW_BATCHES
        arrays["newest"][row] = place
        arrays["next"][row] = advanced(batch.first, batch.count)
        arrays["time_ms"][row] = max(time_ms, int(arrays["time_ms"][row]))
        windows["first"][row, place] = batch.first
        windows["count"][row, place] = batch.count
        windows["offset"][row, place] = batch.offset
        windows["timestamp_ms"][row, place] = batch.timestamp_ms
        return row

    def push(self, rows: Int64s, batches: dict[str, Int64s], *, time_ms: int) -> None:
        """Remember one batch in sequence for each of these rows; a row occurs once."""
        arrays = self.columns.arrays
        places = (arrays["newest"][rows] + 1) % WINDOW_BATCHES
        arrays["newest"][rows] = places
        for name, values in batches.items():
            self.windows.arrays[name][rows, places] = values
        arrays["next"][rows] = (batches["first"] + batches["count"]) % SEQUENCE_END
        arrays["time_ms"][rows] = np.maximum(arrays["time_ms"][rows], time_ms)

    def ordered_windows(self, rows: npt.NDArray[np.intp]) -> dict[str, Int64s]:
        """The windows of these rows as five columns, the oldest batch first, zeros before it.

        Zeros come first whatever the ring's turn, so the bytes depend on the meaning alone.
        """
        turn = self.columns["newest"][rows].astype(np.int64)[:, None] + 1
        places = (turn + np.arange(WINDOW_BATCHES)) % WINDOW_BATCHES
        counts = np.take_along_axis(self.windows["count"][rows], places, axis=1)
        return {
            name: np.where(
                counts > 0, np.take_along_axis(self.windows[name][rows], places, axis=1), 0
            )
            for name in BATCH_FIELDS
        }

    def of_stream(self, stream_row: int) -> Int64s:
        """Rows of the producers of one stream, by rising producer id."""
        rows = self.of_streams([stream_row])
        return rows[np.argsort(self.columns["producer"][rows], kind="stable")]

    def of_streams(self, stream_rows: Sequence[int]) -> Int64s:
        """Rows of the producers of these streams, in one pass over all of them."""
        return np.flatnonzero(np.isin(self.columns["stream"], stream_rows))

    def older_than(self, cutoff_ms: int) -> Int64s:
        """Rows that wrote nothing at or after the cutoff."""
        live = self.columns["stream"] != NONE
        return np.flatnonzero(live & (self.columns["time_ms"] < cutoff_ms))

    def cutoff_ms(self, count: int) -> int:
        """The least time before which so many rows, or all there are, wrote for the last time."""
        times_ms = self.columns["time_ms"][self.columns["stream"] != NONE]
        if not len(times_ms) or count <= 0:
            return 0
        place = min(count, len(times_ms)) - 1
        return int(np.partition(times_ms, place)[place]) + 1

    def forget(self, rows: Iterable[int], *, expired: bool) -> None:
        """Drop these rows; `expired` says that the producers may come back with any sequence."""
        for row in rows:
            stream_row = int(self.columns.arrays["stream"][row])
            producer = int(self.columns.arrays["producer"][row])
            if expired:
                self.expired_max = max(self.expired_max, producer)
            del self.row_of[_key(stream_row, producer)]
            self.columns.arrays["stream"][row] = NONE
            self._free.append(int(row))

    def is_sparse(self) -> bool:
        """Whether dropping dead rows would pay."""
        return is_mostly_dead(len(self._free), self.columns.count)

    def renumber(self, new_stream_rows: Int64s) -> npt.NDArray[np.intp]:
        """Drop dead rows and follow the streams' new row numbers; returns the rows kept."""
        kept = np.flatnonzero(self.columns["stream"] != NONE)
        self.columns = self.columns.taken(kept)
        self.windows = self.windows.taken(kept)
        self.columns["stream"][:] = new_stream_rows[self.columns["stream"]]
        self.relabel()
        return kept

    def relabel(self) -> None:
        """Find rows by stream and producer again, after the columns were filled; none is dead."""
        self._free = []
        keys = zip(self.columns["stream"].tolist(), self.columns["producer"].tolist(), strict=True)
        self.row_of = {_key(*key): row for row, key in enumerate(keys)}

    def copied(self) -> "ProducerTable":
        """The same windows in memory of their own."""
        made = ProducerTable()
        made.columns = self.columns.copied()
        made.windows = self.windows.copied()
        made.row_of = dict(self.row_of)
        made.expired_max = self.expired_max
        made._free = list(self._free)
        return made

    def _claimed(self, stream_row: int, producer: int) -> int:
        """A row for a producer that is new on its stream."""
        if self._free:
            row = self._free.pop()
        else:
            row = self.columns.extend(1)
            self.windows.extend(1)
        arrays = self.columns.arrays
        arrays["stream"][row] = stream_row
        arrays["producer"][row] = producer
        arrays["epoch"][row] = -1
        arrays["newest"][row] = WINDOW_BATCHES - 1
        arrays["time_ms"][row] = 0
        self.windows.arrays["count"][row] = 0
        return row


def _key(stream_row: int, producer: int) -> int:
    return producer << 32 | stream_row
