"""`lakelog sql` against a broker: what it prints, in every format, and what it refuses."""

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.conftest import Command
from tests.lake.running import Broker, running_broker

from lakelog.cli.sql import TABLE_ROWS, json_of, text_of, values_of

FIRST = "2023-11-14T22:13:20.000Z"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("data")) as running:
        running.create("my-topic", lakelog_table_freshness_ms="0")
        running.produce("my-topic", [b"zero", b'{"n": 1}'])
        running.compact()
        running.produce("my-topic", [b"\xff", b"a\nb" + b"x" * 100])
        yield running


@pytest.fixture
def here(lake: Broker) -> tuple[str, str]:
    return "--http", lake.server.removeprefix("http://")


def test_a_table_is_for_people(command: Command, here: tuple[str, str]) -> None:
    statement = 'SELECT "offset", timestamp, value, headers FROM "my-topic" ORDER BY 1'
    ran = command("sql", statement, *here)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].split() == ["offset", "timestamp", "value", "headers"]
    assert lines[1] == f"0       {FIRST}  zero{'':78}NULL"
    assert lines[2].endswith('{"n": 1}' + " " * 74 + '[{"key":"h","value":"x"}]')
    assert '{"base64":"/w=="}' in lines[3]
    assert "a\\nbx" in lines[4]
    assert "x…" in lines[4]


def test_programs_get_everything(command: Command, here: tuple[str, str]) -> None:
    statement = 'SELECT "offset", value, headers, sum("offset") OVER () AS total FROM "my-topic"'
    statement += ' ORDER BY "offset"'
    expected = [
        {"offset": 0, "value": "zero", "headers": None, "total": 6},
        {"offset": 1, "value": '{"n": 1}', "headers": [{"key": "h", "value": "x"}], "total": 6},
        {"offset": 2, "value": {"base64": "/w=="}, "headers": None, "total": 6},
        {
            "offset": 3,
            "value": "a\nb" + "x" * 100,
            "headers": [{"key": "h", "value": "x"}],
            "total": 6,
        },
    ]
    assert json.loads(command("sql", statement, "--format", "json", *here).out) == expected
    lines = command("sql", statement, "--format", "jsonl", "-n", "3", *here).out.splitlines()
    assert [json.loads(line) for line in lines] == expected[:3]
    rows = list(csv.reader(io.StringIO(command("sql", statement, "--format=csv", *here).out)))
    assert rows[0] == ["offset", "value", "headers", "total"]
    assert rows[1] == ["0", "zero", "", "6"]
    assert rows[4][1] == "a\nb" + "x" * 100
    nothing = 'SELECT * FROM "my-topic" WHERE false'
    assert json.loads(command("sql", nothing, "--format", "json", *here).out) == []


def test_a_statement_comes_from_a_file_and_from_standard_input(
    command: Command, here: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "q.sql").write_text('SELECT count(*) AS n FROM "my-topic"; -- all')
    counted = "n\n4\n"
    assert command("sql", "-f", "q.sql", *here).out == counted
    text = (tmp_path / "q.sql").read_bytes()
    assert command("sql", "-", *here, stdin=text).out == counted
    assert command("sql", "-", *here, stdin=b"\xff").code == 2
    for wrong in ((), ("SELECT 1", "-f", "q.sql"), ("-f", "nowhere.sql")):
        assert command("sql", *wrong, *here).code == 2


def test_long_tables_are_cut_with_a_note(command: Command) -> None:
    ran = command("sql", "SELECT * FROM range(2000)")
    assert len(ran.out.splitlines()) == TABLE_ROWS + 1
    assert "--num" in ran.err
    ran = command("sql", "SELECT * FROM range(2000)", "-n", "1500")
    assert len(ran.out.splitlines()) == 1501
    assert not ran.err


def test_a_plan_is_drawn(command: Command, here: tuple[str, str]) -> None:
    drawn = command("sql", 'EXPLAIN SELECT count(*) FROM "my-topic"', *here).out
    assert "READ_PARQUET" in drawn
    assert "┌──" in drawn
    assert command("sql", "SHOW TABLES", *here).out == "name\nmy-topic\n"


def test_mistakes_end_with_one_message(command: Command, here: tuple[str, str]) -> None:
    for arguments, said in (
        (('SELECT * FROM "my-topics"',), 'did you mean "my-topic"?'),
        (("DROP TABLE x",), "DROP is no query"),
        (('FROM "my-topic"', "-o", "failOnDataLos=x"), "did you mean failOnDataLoss"),
        (("SELECT 1", "-o", "x"), "NAME=VALUE"),
    ):
        ran = command("sql", *arguments, *here)
        assert ran.code in (1, 2)
        assert said in ran.err
        assert "Traceback" not in ran.err
    ran = command("sql", "FROM t", "--http", "127.0.0.1:1")
    assert ran.code == 1
    assert "no broker answers" in ran.err


def test_a_configuration_file_leads_to_the_topics(
    command: Command, lake: Broker, tmp_path: Path
) -> None:
    (tmp_path / "l.toml").write_text(f'[broker]\ndata = "{lake.options.broker.data}"\n')
    ran = command("sql", 'SELECT count(*) AS n FROM "my-topic"', "--config", "l.toml")
    assert (ran.code, ran.out) == (0, "n\n4\n"), ran.err


ZONED = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.array([b"a", b"\xff", None]), ["a", {"base64": "/w=="}, None]),
        (
            pa.array([0, 1, None], ZONED),
            ["1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.000001Z"],
        ),
        (pa.array([1500], pa.timestamp("ms")), ["1970-01-01T00:00:01.500"]),
        (pa.array([-1], pa.timestamp("s")), ["1969-12-31T23:59:59"]),
        (pa.array([((1 << 63) // 1000) * 1000], ZONED), ["294247-01-10T04:00:54.775Z"]),
        (pa.array([[b"x"], [], None]), [["x"], [], None]),
        (pa.array([[[1], None]]), [[[1], None]]),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), [[1, 2], None]),
        (pa.array([{"a": b"x"}, None]), [{"a": "x"}, None]),
        (
            pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
            [[["k", 1]], None],
        ),
        (pa.array([Decimal(17999997000000000000000)]), [17999997000000000000000]),
        (pa.array([Decimal("1.5")]), [Decimal("1.5")]),
        (pa.array([date(2024, 1, 2)]), ["2024-01-02"]),
        (pa.array([time(10, 0)]), ["10:00:00"]),
        (pa.array([True, None]), [True, None]),
        (pa.array([datetime(2024, 1, 1, tzinfo=UTC)], ZONED), ["2024-01-01T00:00:00.000Z"]),
    ],
)
def test_a_column_becomes_values(column: pa.Array, values: list[object]) -> None:
    assert values_of(column)[: len(values)] == values


def test_a_slice_of_a_column_gives_its_own_rows() -> None:
    column = pa.array([[1], [2, 3], None, [4]])
    assert values_of(column.slice(1, 2)) == [[2, 3], None]
    rows = pa.array([{"a": 1}, {"a": 2}, None])
    assert values_of(rows.slice(1, 2)) == [{"a": 2}, None]
    pairs = pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int32()))
    assert values_of(pairs.slice(1)) == [[["b", 2]]]


def test_json_is_exact_and_always_json() -> None:
    row = {"a": Decimal("1.5"), "b": float("nan"), "c": 1 << 70, "d": "ä"}
    assert json_of(row) == '{"a":1.5,"b":null,"c":1180591620717411303424,"d":"ä"}'
    assert json.loads(json_of(values_of(pa.array([{"a": [b"x"]}])))) == [{"a": ["x"]}]
    assert [text_of(one) for one in (None, "x", 1, [1], True)] == ["", "x", "1", "[1]", "true"]
