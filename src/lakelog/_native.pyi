"""The compiled kernels (native/*.c). Ask `lakelog.records.kernels` for them: they may be missing.

A module is no type, so its functions stand in a class, which exists for type checkers alone.
"""

from array import array
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from lakelog.records.kernels import Blobs, Bytes, Columns, Flags, Ints, Limits, Longs, ScanOutcome

class RowSource:
    """Columns of rows that `choose_rows`, `merge_rows` and `gather_rows` read; opaque."""

class Native(Protocol):
    """The functions of the module. Verdicts are those of `lakelog.records.kernels`."""

    # answers.c
    def answer_produce(
        self,
        version: int,
        data: Buffer,
        requests: Longs,
        rows: Longs,
        codes: NDArray[np.int16],
        offsets: Longs,
        times: Longs,
        starts: Longs,
        /,
    ) -> bytes:
        """The answers of plain Produce requests, one behind the other."""

    # build.c
    def hash_places(
        self, data: Bytes | Buffer, starts: Longs, ends: Longs, hashes: NDArray[np.uint32], /
    ) -> None: ...
    def write_records(self, numbers: Longs, blobs: Blobs, headers: Longs, output: Bytes, /) -> int:
        """Write records from the packed rows of `build.RecordBlock`: how many bytes."""

    # columns.c
    def fill_columns(self, data: Buffer, base_ms: int, timestamps: Longs, places: Ints, /) -> int:
        """Fill the timestamps and the seven rows of `columns.PLACES`: the verdict."""
    def fill_headers(self, data: Buffer, places: Ints, headers: Ints, /) -> int:
        """Fill key start and end, value start and end of the places' headers: the verdict."""
    def fill_views(self, data: Buffer, starts: Ints, ends: Ints, views: Ints, /) -> None: ...

    # commit.c
    def is_sound_commit(self, columns: tuple[NDArray[Any], ...], size_bytes: int, /) -> bool:
        """Whether batches of such columns can lie in an object of that size."""
    def pack_commit(self, rows: Longs, order: NDArray[np.intp], starts: Longs, /) -> bytes:
        """The columns of a Commit, as they lie in a record, of the batches of an object."""

    # cut.c
    def cut_batches(
        self,
        data: Buffer,
        starts: Longs,
        ends: Longs,
        counts: Longs,
        rules: tuple[int, int, int, int, int, int],
        /,
    ) -> tuple[int, int, int, int, bool, bytes | None]:
        """Take batches from an offset on, up to a number of bytes (`plan.CutOutcome`)."""

    # fetched.c
    def fill_rows(
        self, data: Buffer, table: Longs, from_offset: int, columns: Columns, /
    ) -> tuple[int, int]:
        """Fill columns from the batches of a table: verdict, and how many rows or which batch."""
    def walk_batches(self, data: Buffer, table: Longs, /) -> tuple[int, int, int]:
        """Fill the rows of `FetchedBatches.table`: verdict, count, position after the last."""

    # frames.c
    def find_run(
        self, data: Buffer, start: int, end: int, size_min: int, size_max: int, /
    ) -> tuple[int, int]:
        """Where the frames end that are of the API of the first, and how many there are."""

    # gather.c
    def lay_out(
        self,
        buffers: list[bytes | bytearray | memoryview],
        rows: Longs,
        order: NDArray[np.intp],
        out: Bytes,
        starts: Longs,
        entries_at: int,
        entries_end: int,
        /,
    ) -> tuple[int, int]:
        """Fill in the chunk index and the batches of a WAL object: where the last one ends, and
        the checksum of all that comes before."""

    # judge.c
    def judge_in_order(
        self,
        commit: tuple[NDArray[Any], ...],
        known: tuple[Longs, Longs],
        streams: tuple[Longs, ...],
        producers: tuple[NDArray[Any], ...],
        entries: tuple[NDArray[Any], ...],
        numbers: tuple[int, int, int, int],
        offsets: Longs,
        /,
    ) -> int:
        """Take in a Commit whose batches all go on where their streams stand: how many entries it
        made, or -1 when it is another one, and nothing was changed."""

    # memory.c
    def keep_freed_memory(self, size_bytes: int, /) -> bool:
        """Keep so much memory that was freed; whether the allocator can be told so."""

    # module.c
    def crc32c(self, data: Buffer, crc: int, /) -> int: ...

    # ordering.c
    def choose_rows(
        self,
        sources: tuple[RowSource | None, ...],
        spans: Longs,
        limit: tuple[int, int],
        rows_max: int,
        /,
    ) -> int:
        """Narrow the spans as `ordering.choose` says: how many rows."""
    def gather_rows(
        self,
        sources: tuple[RowSource | None, ...],
        field: int,
        numbers: Ints,
        rows: Ints,
        output: Longs | Ints | Flags,
        /,
    ) -> None: ...
    def merge_rows(
        self,
        sources: tuple[RowSource | None, ...],
        spans: Longs,
        numbers: Ints,
        rows: Ints,
        timestamps_ms: Longs,
        /,
    ) -> bool:
        """Fill what `ordering.merge` returns; false if its numbers are too small for it."""

    # produce.c
    def parse_produce(
        self,
        data: Buffer,
        span: tuple[int, int, int],
        table: tuple[array[int], bytearray, array[int], array[int], array[int]],
        rules: tuple[int, int, int, int, int, int],
        requests: Longs,
        rows: Longs,
        /,
    ) -> tuple[int, int, int, int, int, int, int]:
        """Make rows of plain Produce requests: requests, rows, position, why no more, the topic
        that is not known, and the table's serial."""

    # runs.c
    def find_batches(
        self, data: Buffer, start: int, end: int, verify: bool, table: Longs, /
    ) -> tuple[int, int]:
        """Fill in starts, ends and offset counts of batches that stand behind their lengths: how
        many, and the end or where the first begins that is wrong."""

    def walk_run(self, data: Buffer, base_offset: int, table: Longs, /) -> tuple[int, int]:
        """Fill the rows of `FetchedBatches.table` from a whole run, each batch checked: how many,
        and the end or where the first begins that is wrong."""

    # scan.c
    def scan(
        self, data: Buffer, position: int, index: int, count: int, limits: Limits, /
    ) -> ScanOutcome:
        """Read the records [index, count) that begin at `position`, as far as the data goes."""

    # sorting.c
    def stable_order(self, timestamps_ms: Longs, order: Ints, /) -> bool:
        """Fill the order that sorts these; false if its numbers are too small for it."""

    # sources.c
    def row_source(
        self,
        index: int,
        timestamps_ms: Longs,
        order: Ints | None,
        offsets: Longs,
        key_views: Ints,
        value_views: Ints,
        key_nulls: Flags | None,
        value_nulls: Flags | None,
        /,
    ) -> RowSource:
        """A source, which keeps these arrays."""
