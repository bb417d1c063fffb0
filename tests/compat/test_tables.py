"""The comparison of engines finds what differs; Spark itself runs by `python -m`."""

from pathlib import Path

import duckdb
from tests.compat.spark_runtime import Outcome, outcome
from tests.compat.tables import compare
from tests.compat.tables_figures import DUCKDB, Figures, Report, figures, statement
from tests.http.duck import connected
from tests.http.iceberg_kit import NAMESPACE, served

LIGHT = ("DuckDB", "PyIceberg")


def test_engines_read_the_same_of_ordinary_and_hostile_records(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        report = compare(found.uri, NAMESPACE, "orders", LIGHT)
        assert sorted(report.engines) == sorted(LIGHT)
        assert report.differences() == []
        assert report.rows() == 3176


def test_any_change_of_a_row_changes_the_hash() -> None:
    columns = {
        "partition": "0::INTEGER",
        "offset": "7::BIGINT",
        "timestamp": "make_timestamptz(5)",
        "key": "NULL::BLOB",
        "value": "'v'::BLOB",
        "headers": "[{'key': 'h', 'value': NULL::BLOB}]",
        "attributes": "0::INTEGER",
        "raw": "NULL::BLOB",
    }
    changed = {
        "offset": "8::BIGINT",
        "timestamp": "make_timestamptz(6)",
        "key": "''::BLOB",
        "value": "'w'::BLOB",
        "headers": "[{'key': 'h', 'value': ''::BLOB}]",
        "attributes": "8::INTEGER",
        "raw": "''::BLOB",
    }
    found = {_hash(columns)}
    for name, text in changed.items():
        found.add(_hash({**columns, name: text}))
    assert len(found) == 1 + len(changed)
    assert _hash(columns, times=2) not in found


def _hash(columns: dict[str, str], *, times: int = 1) -> str:
    row = ", ".join(f'{text} AS "{name}"' for name, text in columns.items())
    with duckdb.connect() as duck:
        table = f"(SELECT {row} FROM range({times}))"
        return figures(duck.execute(statement(DUCKDB, table)).fetchall())[0].hash


def test_a_partition_that_one_engine_lacks_or_reads_otherwise_is_named() -> None:
    one, other = Figures(1, 2, 3, "a"), Figures(1, 2, 3, "b")
    report = Report({"A": {0: one, 1: one}, "B": {0: one, 1: other, 2: one}}, {})
    named = report.differences()
    assert [text.split(":")[0] for text in named] == ["partition 1", "partition 2"]
    assert Report({"A": {0: one}, "B": {0: one}}, {}).differences() == []


def test_what_spark_prints_is_read() -> None:
    assert outcome({"rows": [["0", None]]}) == Outcome((("0", None),))
    assert outcome({"error": "no"}) == Outcome(error="no")
    assert figures([("0", "2", "1", "9", "255", "16")]) == {0: Figures(2, 1, 9, "ff-10")}


def test_duckdb_downloads_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as found, connected(found.uri) as duck:
        loaded = duck.execute(
            "SELECT extension_name, install_mode FROM duckdb_extensions() WHERE loaded"
        ).fetchall()
        assert ("iceberg", "NOT_INSTALLED") in loaded
