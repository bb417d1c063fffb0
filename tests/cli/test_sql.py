"""`lakelog sql` against a broker: what it prints, in every format, and what it refuses."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.lake.running import Broker, running_broker

from lakelog.cli.sql import TABLE_ROWS

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
