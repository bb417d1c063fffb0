"""The batches of one partition in a Fetch answer: found by their headers, their CRCs checked.

A broker cuts an answer where its bytes end, so the last batch may be a part of one: it is left out.
What can be no log is refused here, before anybody moves on by it: a batch of another version, and
offsets that do not rise from batch to batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lakelog.records import kernels
from lakelog.records.header import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    MalformedBatchError,
    split_batches,
)
from lakelog.records.kernels import DONE, INT64_MAX, crc32c

if TYPE_CHECKING:
    from lakelog._native import Native
    from lakelog.records.kernels import Flags, Longs


TABLE_ROWS: Final = 10
"""Start, end, base offset, next offset, record count, attributes, base and max timestamp, producer
id and CRC."""

_TABLE_BATCHES: Final = 256
"""Room for so many batches at first: one MiB of batches has rarely more."""

_GROWTH: Final = 8
"""Where the room was too small, so many times as much is tried."""

_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp_ms", ">i8"),
        ("max_timestamp_ms", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert _HEADER.itemsize == HEADER_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class FetchedBatches:
    """The whole batches of one answer in order, their headers as columns of one value a batch."""

    table: "Longs"
    """`TABLE_ROWS` rows; the properties name them."""
    is_cut: bool
    """Whether bytes are there but no whole batch: only a larger answer can go on."""

    def __len__(self) -> int:
        return len(self.table[0])

    @property
    def starts(self) -> "Longs":
        """Where each batch begins in the answer's records."""
        return self._row(0)

    @property
    def ends(self) -> "Longs":
        """Where each batch ends."""
        return self._row(1)

    @property
    def base_offsets(self) -> "Longs":
        """The offset that each batch's deltas count from."""
        return self._row(2)

    @property
    def next_offsets(self) -> "Longs":
        """The offset after each batch, also where compaction removed its last records."""
        return self._row(3)

    @property
    def record_counts(self) -> "Longs":
        """How many records each header declares; a hostile one may declare anything."""
        return self._row(4)

    @property
    def attributes(self) -> "Longs":
        """Codec and flags of each batch."""
        return self._row(5)

    @property
    def base_timestamps_ms(self) -> "Longs":
        """The time that each batch's deltas count from."""
        return self._row(6)

    @property
    def max_timestamps_ms(self) -> "Longs":
        """The greatest time of each batch, or the time of its append."""
        return self._row(7)

    @property
    def producer_ids(self) -> "Longs":
        """Who wrote each batch; -1 is a producer without an id."""
        return self._row(8)

    @property
    def crcs(self) -> "Longs":
        """The CRC-32C that each header declares."""
        return self._row(9)

    @property
    def codecs(self) -> "Longs":
        """The compression of each batch, 0 to 7."""
        return self.attributes & CODEC_MASK

    @property
    def are_control(self) -> "Flags":
        """Which batches hold a transaction's marker and no records of a user."""
        return self._flag(CONTROL_BIT)

    @property
    def are_transactional(self) -> "Flags":
        """Which batches are part of a transaction; its marker is one as well."""
        return self._flag(TRANSACTIONAL_BIT)

    def next_offset(self, default: int) -> int:
        """Where to read on after these batches; `default` where there are none."""
        return int(self.table[3, -1]) if len(self) else default

    def part(self, start: int, end: int) -> "FetchedBatches":
        """The batches [start, end) of these, for a reader that takes an answer piece by piece."""
        return FetchedBatches(self.table[:, start:end], is_cut=False)

    def _row(self, number: int) -> "Longs":
        row: Longs = self.table[number]
        return row

    def _flag(self, bit: int) -> "Flags":
        flags: Flags = self.attributes & bit != 0
        return flags


def walk_batches(records: memoryview) -> FetchedBatches:
    """The whole batches that the records of one partition begin with; nothing is copied."""
    native = kernels.native
    table = walk_in_numpy(records) if native is None else _walk(records, native)
    return FetchedBatches(table, is_cut=table.shape[1] == 0 and len(records) > 0)


def check_crcs(records: memoryview, batches: FetchedBatches) -> int:
    """Which batch is the first whose bytes are not those that its CRC was made of; -1 for none."""
    starts = (batches.starts + ATTRIBUTES_OFFSET).tolist()
    places = zip(starts, batches.ends.tolist(), batches.crcs.tolist(), strict=True)
    for index, (start, end, crc) in enumerate(places):
        if crc32c(records[start:end]) != crc:
            return index
    return -1


def _walk(records: memoryview, native: "Native") -> "Longs":
    room = _TABLE_BATCHES
    while True:
        table = np.empty((TABLE_ROWS, room), np.int64)
        verdict, count, position = native.walk_batches(records, table)
        if verdict != DONE:
            raise MalformedBatchError(f"no batch of a log at byte {position}")
        if count < room:
            # A copy: the room left over is not kept, and every row is contiguous.
            return table[:, :count].copy()
        room *= _GROWTH


def walk_in_numpy(records: memoryview) -> "Longs":
    """The kernel's twin; raises where the kernel returns a verdict."""
    batches = split_batches(records)
    table = header_table(batches)
    sizes = np.fromiter(map(len, batches), np.int64, len(batches))
    table[1] = np.cumsum(sizes)
    table[0] = table[1] - sizes
    base_offsets, deltas = table[2], table[3] - table[2] - 1
    wrong = (base_offsets < 0) | (deltas < 0) | (base_offsets > INT64_MAX - 1 - deltas)
    wrong[1:] |= table[2, 1:] < table[3, :-1]
    if wrong.any():
        raise MalformedBatchError(f"no batch of a log at byte {table[0, wrong.argmax()]}")
    return table


def header_table(batches: Sequence[memoryview]) -> "Longs":
    """What the headers of these batches say, as in `FetchedBatches.table`; places are not set."""
    headers = np.frombuffer(b"".join(batch[:HEADER_BYTES] for batch in batches), _HEADER)
    table = np.empty((TABLE_ROWS, len(batches)), np.int64)
    table[2] = headers["base_offset"]
    table[3] = table[2] + headers["last_offset_delta"] + 1
    table[4] = headers["record_count"]
    table[5] = headers["attributes"]
    table[6] = headers["base_timestamp_ms"]
    table[7] = headers["max_timestamp_ms"]
    table[8] = headers["producer_id"]
    table[9] = headers["crc"]
    return table
