"""Topics as Arrow from a running broker: the same rows, wherever they lie, pinned when asked."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.lake.running import Broker, reading_threads, running_broker

from lakelog.config.named_options import BadOption
from lakelog.lake.read import arrow_reader as reading
from lakelog.lake.read.range_plan import DataLoss
from lakelog.lake.sql.sql_query import query
from lakelog.model.failures import Refused, Unavailable
from lakelog.streams.objects import FileKind

FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("data")) as running:
        yield running


def values(count: int, mark: str = "v") -> list[bytes]:
    return [f"{mark}-{number}".encode() for number in range(count)]


def test_a_topic_is_read_with_the_columns_of_sparks_source(broker: Broker) -> None:
    broker.create("columns", 2)
    broker.produce("columns", values(3), partition=1)
    table = reading.read("columns", server=broker.server, options={"includeHeaders": "true"})
    assert table.to_pylist()[:2] == [
        {
            "key": b"k0",
            "value": b"v-0",
            "topic": "columns",
            "partition": 1,
            "offset": 0,
            "timestamp": datetime.fromtimestamp(FIRST_MS / 1000, UTC),
            "timestampType": 0,
            "headers": None,
        },
        {
            "key": b"k1",
            "value": b"v-1",
            "topic": "columns",
            "partition": 1,
            "offset": 1,
            "timestamp": datetime.fromtimestamp(FIRST_MS / 1000 + 1, UTC),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"x"}],
        },
    ]
    assert table.num_rows == 3
    assert "headers" not in reading.read("columns", server=broker.server).column_names


def test_rows_are_the_same_before_and_after_compaction(broker: Broker) -> None:
    broker.create("moving", 3, lakelog_table_freshness_ms="0")
    for partition in range(3):
        broker.produce("moving", values(500, f"p{partition}"), partition=partition)
    before = reading.read("moving", server=broker.server, threads=3)
    planned = reading.open("moving", server=broker.server)
    broker.compact()
    assert broker.kinds("moving", 3) == [[FileKind.PARQUET]] * 3
    broker.produce("moving", values(10, "late"), partition=2)
    after = reading.read("moving", server=broker.server)
    assert after.slice(0, 1500).equals(before)
    assert [row["value"] for row in after.slice(1500).to_pylist()] == values(10, "late")
    assert planned.read_all().equals(before), "pinned when it was opened"
    expected = [value for at in range(3) for value in values(500, f"p{at}")]
    assert before["value"].to_pylist() == expected


def test_deleted_records_are_read_from_neither_log_nor_table(broker: Broker) -> None:
    broker.create("deleted", 1, lakelog_table_freshness_ms="0")
    broker.produce("deleted", values(200))
    admin = AdminClient({"bootstrap.servers": str(broker.running.address)})
    for done in admin.delete_records([TopicPartition("deleted", 0, 130)]).values():
        assert done.result(30).low_watermark == 130
    before = reading.read("deleted", server=broker.server)
    assert before["offset"].to_pylist() == list(range(130, 200))
    broker.compact()
    assert broker.kinds("deleted", 1) == [[FileKind.PARQUET]]
    assert reading.read("deleted", server=broker.server).equals(before)
    statement = 'select "offset" from deleted order by all'
    assert query(statement, server=broker.server)["offset"].to_pylist() == list(range(130, 200))
    (file,) = Path(broker.options.broker.data).glob("**/topic=deleted/**/*.parquet")
    assert pq.read_table(file)["offset"].to_pylist() == list(range(130, 200))


def test_a_read_begins_and_ends_where_it_is_told_to(broker: Broker) -> None:
    broker.create("limits", 2)
    for partition in range(2):
        broker.produce("limits", values(10), partition=partition)

    def offsets(**limits: object) -> list[tuple[int, int]]:
        table = reading.read(
            "limits",
            server=broker.server,
            columns=["partition", "offset"],
            **limits,  # type: ignore[arg-type]  # as a user writes them
        )
        return [(row["partition"], row["offset"]) for row in table.to_pylist()]

    assert offsets(starting={0: 8, 1: 9}) == [(0, 8), (0, 9), (1, 9)]
    assert offsets(ending={"limits": {0: 1, 1: 0}}) == [(0, 0)]
    at = datetime.fromtimestamp(FIRST_MS / 1000 + 7.5, UTC)
    assert offsets(starting=at) == [(0, 8), (0, 9), (1, 8), (1, 9)]
    assert offsets(starting='{"limits":{"0":9,"1":-2}}', ending='{"limits":{"0":-1,"1":1}}') == [
        (0, 9),
        (1, 0),
    ]
    where = [("timestamp", ">=", at), ("partition", "=", 1), ("value", "!=", b"v-9")]
    assert offsets(where=where) == [(1, 8)]
    assert offsets(options={"minPartitions": "7"}) == [(p, o) for p in range(2) for o in range(10)]
    with pytest.raises(DataLoss, match="limits-0 ends at offset 10"):
        offsets(ending={0: 11, 1: 0})
    lenient = {"failOnDataLoss": "false"}
    assert len(offsets(ending={0: 11, 1: 0}, options=lenient)) == 10
    late = datetime.fromtimestamp(FIRST_MS / 1000 + 1000, UTC)
    with pytest.raises(BadOption, match="no record at or after"):
        offsets(starting=late)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert offsets(starting=late, options=latest) == []


def test_topics_are_found_by_pattern_and_by_assignment(broker: Broker) -> None:
    broker.create("many-a", 2)
    broker.create("many-b", 1)
    broker.produce("many-a", values(2), partition=1)
    broker.produce("many-b", values(1))

    def places(options: dict[str, str]) -> list[tuple[str, int]]:
        table = reading.read(server=broker.server, options=options)
        return [(row["topic"], row["partition"]) for row in table.to_pylist()]

    assert places({"subscribePattern": "^many-"}) == [("many-a", 1), ("many-a", 1), ("many-b", 0)]
    assert places({"assign": '{"many-b":[0]}'}) == [("many-b", 0)]
    assert places({"subscribePattern": "^nothing"}) == []
    assert reading.read(["many-b", "many-a"], server=broker.server).num_rows == 3


def test_bad_input_is_named(broker: Broker) -> None:
    with pytest.raises(TypeError, match="column"):
        reading.read("t", server=broker.server, column=["key"])  # type: ignore[call-arg]  # no such
    for said, topic, options in (
        ("subscribe names 'nowhere'", "nowhere", {}),
        ("did you mean startingOffsets", "t", {"startingOffset": "x"}),
        ("subscribe is given twice", "t", {"subscribe": "u"}),
    ):
        with pytest.raises(BadOption, match=said):
            reading.read(topic, server=broker.server, options=options)
    with pytest.raises(BadOption, match="no column"):
        reading.read("t", server=broker.server, columns=["vlaue"])
    with pytest.raises(BadOption, match=r"lakelog\.server"):
        reading.read("t")
    with pytest.raises(Unavailable, match="no broker answers"):
        reading.read("t", server="http://127.0.0.1:1")
    with pytest.raises(BadOption, match="time zone"):
        reading.read("t", server=broker.server, starting=datetime(2024, 1, 1))  # noqa: DTZ001 - refused


def test_a_configuration_file_leads_to_the_stores(broker: Broker, tmp_path: Path) -> None:
    broker.create("configured")
    broker.produce("configured", values(4))
    file = tmp_path / "lakelog.toml"
    file.write_text(f'[broker]\ndata = "{broker.options.broker.data}"\n')
    assert reading.read("configured", config=str(file)).num_rows == 4
    file.write_text("[broker]\ndta = 1\n")
    with pytest.raises(Refused, match="did you mean"):
        reading.read("configured", config=str(file))


def test_a_read_inside_of_a_running_loop_works_as_in_a_notebook(broker: Broker) -> None:
    broker.create("notebook")
    broker.produce("notebook", values(4))

    async def cell() -> pa.Table:
        return reading.read("notebook", server=broker.server)

    assert asyncio.run(cell()).num_rows == 4


def test_a_reader_that_is_dropped_leaves_no_thread_behind(broker: Broker) -> None:
    broker.create("dropped")
    broker.produce("dropped", values(4))
    unused = reading.open("dropped", server=broker.server)
    assert not reading_threads()
    assert unused.read_next_batch().num_rows == 4
    unused.close()
    del unused
    assert not reading_threads()


def test_a_topic_made_again_is_another_one(broker: Broker) -> None:
    broker.create("again")
    broker.produce("again", values(4))
    planned = reading.open("again", server=broker.server)
    broker.delete("again")
    broker.create("again")
    broker.produce("again", values(2, "new"))
    assert planned.read_all()["value"].to_pylist() == values(4), "its objects are still there"
    now = reading.read("again", server=broker.server)
    assert now["value"].to_pylist() == values(2, "new")


def test_reads_while_producers_write_and_the_pipeline_compacts_are_exact(broker: Broker) -> None:
    broker.create("busy", 2, lakelog_table_freshness_ms="0")
    stop = threading.Event()
    sent = [0, 0]

    def produce() -> None:
        while not stop.is_set():
            for partition in range(2):
                some = [b"%d" % (sent[partition] + at) for at in range(50)]
                broker.produce("busy", some, partition=partition)
                sent[partition] += 50

    def compact() -> None:
        while not stop.is_set():
            broker.compact()

    threads = [threading.Thread(target=work) for work in (produce, compact)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            least = list(sent)
            table = reading.read("busy", server=broker.server, columns=["partition", "value"])
            for partition in range(2):
                mask = pc.equal(table["partition"], partition)
                found = table.filter(mask)["value"].to_pylist()
                assert found == [b"%d" % at for at in range(len(found))]
                assert len(found) >= least[partition]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_the_package_itself_has_both_functions_and_loads_nothing_for_them() -> None:
    code = (
        "import sys, lakelog; print('lakelog.lake' in sys.modules);"
        "print(lakelog.read.__name__, lakelog.open.__name__);"
        "print({'pyarrow', 'pyspark', 'pandas', 'starlette'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.splitlines() == ["False", "read open", "set()"]
