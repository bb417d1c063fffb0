"""Queries over topics of a running broker: the rows of a read, whatever files they lie in."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.compat.lake_log import send_hostile
from tests.lake.running import Broker, reading_threads, running_broker

from lakelog.cli.main import run
from lakelog.config.named_options import BadOption
from lakelog.lake.read.arrow_reader import read
from lakelog.lake.read.range_plan import DataLoss
from lakelog.lake.sql import sql_query
from lakelog.lake.sql.duckdb_engine import BadStatement, DataFileGone, QueryRun
from lakelog.lake.sql.sql_query import open_query, query
from lakelog.model.failures import NotFound, Unavailable
from lakelog.streams.objects import FileKind

FOR_EVER = str((1 << 63) - 1)
ORDERED = 'SELECT * FROM "mixed.topic-1" ORDER BY partition, "offset"'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("it's data")) as running:
        yield running


@pytest.fixture(scope="module")
def mixed(broker: Broker) -> str:
    """A topic with segments, data files and WAL objects, hostile records in each of them."""
    name = "mixed.topic-1"
    broker.create(
        name,
        2,
        lakelog_format="kfs",
        lakelog_table_freshness_ms="0",
        message_timestamp_before_max_ms=FOR_EVER,
        message_timestamp_after_max_ms=FOR_EVER,
    )
    address = str(broker.running.address)
    for rounds, change in ((1, "lakelog.format=parquet"), (2, ""), (0, "")):
        broker.produce(name, [b'{"n": %d}' % at for at in range(100)])
        broker.produce(name, [b'{"n": %d}' % at for at in range(100)], partition=1)
        asyncio.run(send_hostile(address, name))
        for _ in range(rounds):  # the first of two gives the table the rows of the segments
            broker.compact()
        if change:
            assert run(["topics", "alter", name, "--config", change, "-b", address]) == 0
    for kinds in broker.kinds(name, 2):
        assert {FileKind.SEGMENT, FileKind.PARQUET, FileKind.WAL} == set(kinds)
    return name


def whole(broker: Broker, topic: str) -> pa.Table:
    return read(topic, server=broker.server, options={"includeHeaders": "true"})


@pytest.mark.parametrize("hint", ["", "-- timestamp"])
def test_rows_are_exactly_those_of_a_read(broker: Broker, mixed: str, hint: str) -> None:
    expected = whole(broker, mixed)
    found = query(f"{ORDERED} {hint}", server=broker.server)
    assert found.column_names == expected.column_names
    assert found.cast(expected.schema).equals(expected)
    assert expected.num_rows > 1000


def test_rows_are_the_same_where_duckdb_cannot_open_the_files(broker: Broker, mixed: str) -> None:
    expected = whole(broker, mixed)
    work = sql_query._work(ORDERED, {"lakelog.server": broker.server}, threads=2)
    run_of_it = QueryRun(work, scan_files=False)
    found = pa.Table.from_batches(run_of_it.batches(), run_of_it.schema)
    assert found.cast(expected.schema).equals(expected)


def test_a_result_without_end_is_made_as_it_is_taken() -> None:
    endless = open_query("SELECT * FROM range(1_000_000_000_000)")
    assert endless.read_next_batch().num_rows
    endless.close()


@pytest.mark.parametrize(
    "where",
    [
        "partition = 1",
        '"offset" >= 150 AND "offset" < 160',
        "timestamp > '9999-01-01'::TIMESTAMPTZ",
        "timestamp < '1970-01-01'::TIMESTAMPTZ OR key IS NULL",
        "value = '\\x80'::BLOB OR value = 'v'::BLOB OR octet_length(value) = 300",
        "headers IS NOT NULL AND len(headers) > 3",
        "timestampType = 1 OR topic <> 'mixed.topic-1'",
        'partition IN (SELECT 0) AND "offset" IN (1, 5, 700)',
    ],
)
def test_conditions_choose_the_rows_that_they_mean(broker: Broker, mixed: str, where: str) -> None:
    import duckdb  # noqa: PLC0415 - the oracle of this test

    with duckdb.connect(":memory:") as oracle:
        oracle.register(mixed, whole(broker, mixed))
        statement = f'SELECT partition, "offset" FROM "{mixed}" WHERE {where} ORDER BY ALL'
        expected = oracle.execute(statement).to_arrow_table()
    assert query(statement, server=broker.server).equals(expected)


def test_a_topic_may_be_used_twice_and_with_others(broker: Broker, mixed: str) -> None:
    broker.create("Plain", 3)
    broker.produce("Plain", [b"%d" % at for at in range(5)], partition=2)
    count = whole(broker, mixed).num_rows
    statement = f'FROM "{mixed}" a JOIN "{mixed}" b USING (partition, "offset") SELECT count(*) n'
    assert query(statement, server=broker.server).to_pylist() == [{"n": count}]
    statement = (
        "WITH plain AS (FROM plain WHERE decode(value) <> '3')"
        f' SELECT count(*) n FROM plain JOIN "{mixed}" m USING (partition, "offset")'
        " UNION ALL SELECT sum(decode(value)::INT) FROM main.plain"
    )
    assert query(statement, server=broker.server)["n"].to_pylist() == [0, 10]


def test_a_statement_sees_one_moment(broker: Broker) -> None:
    broker.create("moment")
    broker.produce("moment", [b"a", b"b"])
    planned = open_query("SELECT value FROM moment", server=broker.server)
    broker.produce("moment", [b"c"])
    assert planned.read_all()["value"].to_pylist() == [b"a", b"b"]
    after = query("SELECT count(*) AS n FROM moment", server=broker.server)
    assert after.to_pylist() == [{"n": 3}]


def test_limits_and_losses_are_those_of_the_options(broker: Broker) -> None:
    broker.create("optional")
    broker.produce("optional", [b"%d" % at for at in range(10)])
    options = {"startingOffsets": '{"optional":{"0":7}}'}
    statement = 'SELECT min("offset") AS least FROM optional'
    found = query(statement, server=broker.server, options=options)
    assert found["least"].to_pylist() == [7]
    options = {"endingOffsets": '{"optional":{"0":70}}'}
    with pytest.raises(DataLoss, match="ends at offset 10"):
        query(statement, server=broker.server, options=options)


def test_a_file_cut_by_the_options_gives_its_part(broker: Broker) -> None:
    broker.create("parted", lakelog_table_freshness_ms="0")
    broker.produce("parted", [b"%d" % at for at in range(100)])
    broker.compact()
    assert broker.kinds("parted", 1) == [[FileKind.PARQUET]]
    options = {"startingOffsets": '{"parted":{"0":40}}', "endingOffsets": '{"parted":{"0":60}}'}
    statement = 'SELECT count(*) AS n, min("offset") AS a, max("offset") AS b FROM parted'
    found = query(statement, server=broker.server, options=options)
    assert found.to_pylist() == [{"n": 20, "a": 40, "b": 59}]


def test_a_file_that_goes_away_is_read_elsewhere(broker: Broker) -> None:
    broker.create("moved", lakelog_table_freshness_ms="0")
    broker.produce("moved", [b"%d" % at for at in range(100)])
    broker.compact()
    folder = Path(broker.options.broker.data)
    (file,) = folder.rglob("*topic=moved*/**/*.parquet")
    data = file.read_bytes()
    statement = "SELECT sum(decode(value)::INT) AS n FROM moved"
    work = sql_query._work(statement, {"lakelog.server": broker.server}, threads=2)
    file.unlink()
    with pytest.raises(DataFileGone):
        QueryRun(work, scan_files=True)
    with pytest.raises(NotFound, match="is not there"):
        query(statement, server=broker.server)
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(BadStatement, match=file.name):
        query(statement, server=broker.server)
    file.write_bytes(data)
    for scan_files in (True, False):
        (batch,) = QueryRun(work, scan_files=scan_files).batches()
        assert batch.to_pylist() == [{"n": 4950}]


def test_tables_are_listed_and_described(broker: Broker, mixed: str) -> None:
    listed = query("SHOW TABLES", server=broker.server)["name"].to_pylist()
    assert mixed in listed
    assert "~tail 0" not in listed
    columns = query(f'DESCRIBE "{mixed}"', server=broker.server)["column_name"].to_pylist()
    assert columns == whole(broker, mixed).column_names
    plan = query(f'EXPLAIN SELECT count(*) FROM "{mixed}"', server=broker.server)
    assert "READ_PARQUET" in plan["explain_value"][0].as_py()


def test_a_query_without_topics_needs_no_broker() -> None:
    assert query("SELECT 6 * 7 AS n").to_pylist() == [{"n": 42}]


def test_bad_input_is_named(broker: Broker, mixed: str) -> None:
    broker.create("twin")
    broker.create("Twin")
    for statement, said in (
        ('FROM "mixed.topic-2"', 'did you mean "mixed.topic-1"'),
        ("FROM zzz", "there is no topic 'zzz'; there are "),
        ("FROM TWIN", "any of the topics Twin, twin"),
        ("FROM twin, Twin", "one name to SQL"),
        (f'SELECT vlaue FROM "{mixed}"', 'column "vlaue" not found'),
        (f'SELECT decode(value) FROM "{mixed}"', "UTF8|UTF-8|unicode"),
        ("SELECT * FROM read_text('/etc/hostname')", "no other files"),
        ("SELECT * FROM '/etc/hostname'", "there is no topic"),
        ("SELECT * FROM read_parquet('s3://b/k')", "no other files|httpfs"),
    ):
        with pytest.raises(BadStatement, match=said):
            query(statement, server=broker.server)
    with pytest.raises(BadOption, match="the statement names its topics"):
        query("FROM twin", server=broker.server, options={"Subscribe": "twin"})
    with pytest.raises(BadOption, match=r"lakelog\.server"):
        query("FROM twin")
    with pytest.raises(Unavailable, match="no broker answers"):
        query("FROM twin", server="http://127.0.0.1:1")


def test_a_variable_of_the_caller_is_no_table(broker: Broker) -> None:
    zzz = pa.table({"a": [1]})
    with pytest.raises(BadStatement, match="there is no topic 'zzz'"):
        query("FROM zzz", server=broker.server)
    assert zzz.num_rows == 1


def test_a_result_that_is_dropped_leaves_nothing_behind(broker: Broker, mixed: str) -> None:
    result = open_query(f'SELECT * FROM "{mixed}"', server=broker.server)
    assert result.read_next_batch().num_rows
    result.close()
    del result
    assert not reading_threads()


def test_without_duckdb_the_remedy_is_named() -> None:
    code = (
        "import sys; sys.modules['duckdb'] = None; import lakelog;"
        "from lakelog.model.failures import Refused\n"
        "try: lakelog.sql('SELECT 1')\n"
        "except Refused as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "SQL needs DuckDB and Arrow: pip install 'lakelog[sql]'\n"
