"""Which names of a query are topics, by the tree of DuckDB's parser."""

import pytest

from lakelog.reading.sql_engine import BadStatement, parse


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
