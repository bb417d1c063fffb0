"""Names in queries that mean topics, and the views that topics are."""

from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.records.table_cases import ROOMY, hostile_batches

from lakelog.index.entries import Entries
from lakelog.index.ports import PinnedRange
from lakelog.lake.read.range_plan import PlannedRange
from lakelog.lake.read.read_request import arrow_schema, default_columns
from lakelog.lake.read.row_decoder import RowMaker
from lakelog.lake.sql.duckdb_engine import BadStatement, parse
from lakelog.lake.sql.topic_views import TAIL_COLUMNS, TopicParts, quoted, text, topic_parts, view
from lakelog.records.table_rows import RowBuilder
from lakelog.streams.objects import FileKind
from lakelog.wal.layout import WAL_ID_BYTES


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("SELECT * FROM orders", ("orders",)),
        ('SELECT * FROM "my-topic" m JOIN "a.b" USING (key)', ("a.b", "my-topic")),
        ("FROM orders", ("orders",)),
        ("TABLE orders", ("orders",)),
        ("DESCRIBE orders", ("orders",)),
        ("SUMMARIZE SELECT * FROM orders", ("orders",)),
        ("EXPLAIN SELECT * FROM orders", ("orders",)),
        ("-- why\n/* so */ EXPLAIN ANALYZE SELECT * FROM orders", ("orders",)),
        ("EXPLAIN (FORMAT json) SELECT * FROM orders", ("orders",)),
        ("PIVOT orders ON partition IN (0, 1) USING count(*)", ("orders",)),
        ("SELECT (SELECT max(a) FROM x) FROM y WHERE EXISTS (FROM z)", ("x", "y", "z")),
        ("SELECT 1 UNION ALL (SELECT 2 FROM u EXCEPT TABLE v)", ("u", "v")),
        ("SELECT * FROM a, a b, LATERAL (SELECT * FROM c)", ("a", "c")),
        ("SELECT * FROM main.orders", ("orders",)),
        ("SELECT * FROM 'file.parquet'", ("file.parquet",)),
        ("SELECT 1", ()),
        ("VALUES (1)", ()),
        ("SELECT * FROM range(3)", ()),
        ("SELECT * FROM information_schema.tables, duckdb_tables, pg_tables", ()),
    ],
)
def test_names_are_found_wherever_they_stand(statement: str, names: tuple[str, ...]) -> None:
    assert parse(statement).names == names
    assert not parse(statement).lists_topics


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("WITH a AS (SELECT * FROM t) SELECT * FROM a, A", ("t",)),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", ("t",)),
        ("WITH a AS (FROM t), b AS (FROM a) FROM b", ("t",)),
        ("WITH a AS (FROM b), b AS (FROM t) FROM b", ("b", "t")),
        ("SELECT * FROM (WITH a AS (SELECT 1) FROM a), a", ("a",)),
        ("WITH a AS (SELECT 1) SELECT (SELECT 1 FROM a), (SELECT 1 FROM main.a)", ("a",)),
        (
            "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r, t) FROM r",
            ("t",),
        ),
    ],
)
def test_what_a_query_defines_itself_is_no_topic(statement: str, names: tuple[str, ...]) -> None:
    assert parse(statement).names == names


def test_a_list_of_tables_is_a_list_of_topics() -> None:
    assert parse("SHOW TABLES").lists_topics
    assert parse("show all tables;").lists_topics


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("", "there is no statement"),
        ("-- nothing", "there is no statement"),
        ("SELECT 1; SELECT 2", "there are 2 statements"),
        ("PIVOT t ON partition USING count(*)", "PIVOT needs its values"),
        ("SELEC 1", "syntax error"),
        ("SELECT offset FROM t", '"offset", in double quotes'),
        ("INSERT INTO t VALUES (1)", "INSERT is no query"),
        ("COPY t TO 'x.csv'", "COPY is no query"),
        ("CREATE TABLE x AS FROM t", "CREATE is no query"),
        ("ATTACH 'x.db'", "ATTACH is no query"),
        ("INSTALL httpfs", "LOAD is no query"),
        ("SET threads = 1", "SET is no query"),
        ("CALL pragma_version()", "CALL is no query"),
        ("EXPLAIN ANALYZE INSERT INTO t VALUES (1)", "EXPLAIN is no query"),
        ("DROP TABLE t", "DROP is no query"),
        ("SELECT '\ud800'", "no text"),
        ("SELECT " + "(SELECT " * 300 + "1" + ")" * 300, "depth|deep"),
    ],
)
def test_anything_but_one_query_is_refused(statement: str, said: str) -> None:
    with pytest.raises(BadStatement, match=said):
        parse(statement)


ALL = default_columns(include_headers=True)
WAL, SEGMENT, PARQUET = FileKind.WAL, FileKind.SEGMENT, FileKind.PARQUET


def hinted(kinds: Sequence[FileKind], start: int, end: int, *, partition: int = 0) -> PlannedRange:
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
    return PlannedRange(PinnedRange("t", b"", partition, 1, start, end), entries)


def tails(parts: TopicParts) -> list[tuple[int, int]]:
    return [(one.pinned.start, one.pinned.end) for one in parts.tail]


def test_files_are_scanned_and_the_rest_is_read() -> None:
    kinds = [PARQUET, SEGMENT, PARQUET, WAL, WAL]
    parts = topic_parts([hinted(kinds, 0, 50)], "/d")
    assert parts.whole == ("/d/f0", "/d/f2")
    assert parts.partial == ()
    assert tails(parts) == [(10, 20), (30, 50)]


def test_a_file_is_cut_where_the_range_ends_and_where_a_trimmed_log_begins() -> None:
    kinds = [PARQUET, PARQUET, PARQUET]
    parts = topic_parts([hinted(kinds, 4, 25, partition=3)], "/d")
    assert [(one.path, one.partition, one.start, one.end) for one in parts.partial] == [
        ("/d/f0", 3, 4, 10),
        ("/d/f2", 3, 20, 25),
    ]
    assert parts.whole == ("/d/f1",)
    # Its file may begin before its entry: the log was trimmed while it was made.
    parts = topic_parts([hinted(kinds, 10, 30)], "/d")
    assert [one.path for one in parts.partial] == ["/d/f1"]


@pytest.mark.parametrize("directory", [None, "/d[1]", "/d*", "/d?"])
def test_nothing_is_scanned_where_duckdb_cannot_or_would_see_a_pattern(
    directory: str | None,
) -> None:
    one = hinted([PARQUET, WAL], 0, 20)
    assert topic_parts([one], directory) == TopicParts((), (), (one,))


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
    parts = topic_parts(ranges, str(tmp_path))
    files = (str(file),)
    if cut:
        (one,) = topic_parts([hinted([PARQUET], 4, 10)], str(tmp_path)).partial
        bounds = type(one)(str(file), 7, start, end)
        parts = TopicParts((), (bounds,), ())
    else:
        parts = TopicParts(files, (), ())
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
