"""A topic as a view over files: the rows that a reader makes of the same files."""

from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.records.table_cases import ROOMY, hostile_batches

from lakelog.reading.decode import RowMaker
from lakelog.reading.entries import WAL_ID_BYTES, Entries
from lakelog.reading.plan import Hinted, PinnedRange
from lakelog.reading.schema import arrow_schema, default_columns
from lakelog.reading.sql_view import TAIL_COLUMNS, Parts, parts_of, quoted, text, view
from lakelog.records.table_rows import RowBuilder
from lakelog.streams.objects import FileKind

ALL = default_columns(include_headers=True)
WAL, SEGMENT, PARQUET = FileKind.WAL, FileKind.SEGMENT, FileKind.PARQUET


def hinted(kinds: Sequence[FileKind], start: int, end: int, *, partition: int = 0) -> Hinted:
    """Entries of ten offsets each, of which [start, end) is meant."""
    count = len(kinds)
    entries = Entries(
        0,
        np.arange(count + 1, dtype=np.int64) * 10,
        np.array(kinds, np.uint8),
        np.zeros(count, np.int64),
        np.ones(count, np.int64),
        np.zeros(count, np.int64),
        np.zeros((count, WAL_ID_BYTES), np.uint8),
        np.arange(count, dtype=np.int32),
        tuple(f"f{at}" if kind is not WAL else "z" for at, kind in enumerate(kinds)),
    )
    return Hinted(PinnedRange("t", b"", partition, 1, start, end), entries)


def tails(parts: Parts) -> list[tuple[int, int]]:
    return [(one.pinned.start, one.pinned.end) for one in parts.tail]


def test_files_are_scanned_and_the_rest_is_read() -> None:
    kinds = [PARQUET, SEGMENT, PARQUET, WAL, WAL]
    parts = parts_of([hinted(kinds, 0, 50)], "/d")
    assert parts.whole == ("/d/f0", "/d/f2")
    assert parts.cut == ()
    assert tails(parts) == [(10, 20), (30, 50)]


def test_a_file_is_cut_where_the_range_ends_and_where_a_trimmed_log_begins() -> None:
    kinds = [PARQUET, PARQUET, PARQUET]
    parts = parts_of([hinted(kinds, 4, 25, partition=3)], "/d")
    assert [(one.path, one.partition, one.start, one.end) for one in parts.cut] == [
        ("/d/f0", 3, 4, 10),
        ("/d/f2", 3, 20, 25),
    ]
    assert parts.whole == ("/d/f1",)
    # Its file may begin before its entry: the log was trimmed while it was made.
    parts = parts_of([hinted(kinds, 10, 30)], "/d")
    assert [one.path for one in parts.cut] == ["/d/f1"]


@pytest.mark.parametrize("directory", [None, "/d[1]", "/d*", "/d?"])
def test_nothing_is_scanned_where_duckdb_cannot_or_would_see_a_pattern(
    directory: str | None,
) -> None:
    one = hinted([PARQUET, WAL], 0, 20)
    assert parts_of([one], directory) == Parts((), (), (one,))


@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize("cut", [False, True])
def test_hostile_rows_of_a_file_are_those_of_a_reader(
    tmp_path: Path, by_time: bool, cut: bool
) -> None:
    builder = RowBuilder(partition=7, decompressed_bytes_max=ROOMY)
    for base_offset, batch in hostile_batches():
        builder.add(base_offset, batch)
    rows = builder.take()
    file = tmp_path / "it's=1.parquet"
    pq.write_table(rows, file, store_schema=False)
    start, end = (100, 500) if cut else (0, 1 << 40)
    maker = RowMaker(ALL, topic='t"x', partition=7)
    expected = pa.Table.from_batches(maker.made(rows, start=start, end=end))

    ranges = [hinted([PARQUET], 0, 10)]
    parts = parts_of(ranges, str(tmp_path))
    files = (str(file),)
    if cut:
        (one,) = parts_of([hinted([PARQUET], 4, 10)], str(tmp_path)).cut
        bounds = type(one)(str(file), 7, start, end)
        parts = Parts((), (bounds,), ())
    else:
        parts = Parts(files, (), ())
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("~tail", arrow_schema(TAIL_COLUMNS).empty_table())
        connection.execute(view('t"x', "~tail", parts, by_time=by_time))
        found = connection.execute('FROM "t""x" ORDER BY "offset"').to_arrow_table()
    assert found.cast(expected.schema).equals(expected)
    assert expected.num_rows == (400 if cut else rows.num_rows)


def test_names_and_texts_are_quoted() -> None:
    assert quoted('a"b') == '"a""b"'
    assert text("it's") == "'it''s'"
