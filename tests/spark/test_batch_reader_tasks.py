"""What a task of a read does: its split, its rows, and ranges as the text of an option."""

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType
from tests.lake.running import Broker, running_broker
from tests.spark.kinds import damage

from lakelog.config.named_options import BadOption
from lakelog.index.ports import PinnedRange
from lakelog.lake.read.range_plan import DataLoss
from lakelog.lake.read.read_request import arrow_schema, default_columns
from lakelog.lake.read.row_decoder import BATCH_BYTES_MAX
from lakelog.model.failures import Corrupt
from lakelog.spark.batch_reader import (
    BatchReader,
    SplitPartition,
    batch_reader,
    decode_ranges,
    encode_ranges,
    read,
)
from lakelog.spark.runtime import runtime
from lakelog.streams.objects import FileKind

_numbers = st.integers(0, (1 << 63) - 1)
_ranges = st.builds(
    PinnedRange,
    st.sampled_from(["t", "ü.x"]),
    st.sampled_from([b"", bytes(16), b"\xff" * 16]),
    _numbers,
    _numbers,
    _numbers,
    _numbers,
)


@given(st.lists(_ranges))
def test_ranges_come_back_as_they_were_topic_by_topic(given_ranges: list[PinnedRange]) -> None:
    topics = list(dict.fromkeys((one.topic, one.topic_id) for one in given_ranges))
    expected = sorted(given_ranges, key=lambda one: topics.index((one.topic, one.topic_id)))
    assert decode_ranges(encode_ranges(given_ranges)) == tuple(expected)


def test_a_thousand_partitions_are_a_short_text() -> None:
    ranges = [PinnedRange("orders", bytes(16), at, at + 1, 0, 10**9) for at in range(1000)]
    assert len(encode_ranges(ranges)) < 30_000


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[["t","",[[1,2,3]]]]', '[["t","?",[]]]'])
def test_what_is_no_ranges_names_the_option(text: str) -> None:
    with pytest.raises(BadOption, match=r"lakelog\.ranges cannot be read"):
        decode_ranges(text)


COLUMNS = default_columns(include_headers=False)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of our own, whose objects are damaged and deleted here."""
    with running_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


def planned(broker: Broker, topic: str, **options: str) -> list[InputPartition]:
    given = {"lakelog.server": broker.server, "subscribe": topic, **options}
    reader = batch_reader(given, schema(*COLUMNS))
    assert isinstance(reader, BatchReader)
    found: list[InputPartition] = pickle.loads(pickle.dumps(list(reader.partitions())))
    return found


def schema(*names: str) -> StructType:
    names_of_types = ["binary", "binary", "string", "integer", "long", "timestamp", "integer"]
    kinds = dict(zip(COLUMNS, names_of_types, strict=True))
    made = StructType()
    for name in names:
        made = made.add(name, kinds[name])
    return made


def all_rows(partitions: list[InputPartition]) -> pa.Table:
    batches = [batch for one in partitions for batch in read(one)]
    return pa.Table.from_batches(batches, arrow_schema(COLUMNS))


def objects(broker: Broker) -> Path:
    return Path(broker.options.objects_url().removeprefix("file:").removeprefix("//"))


def wal_objects(broker: Broker) -> list[Path]:
    found = [one for one in objects(broker).rglob("*") if one.is_file()]
    return [one for one in found if "compaction" not in one.parts]


def test_a_plan_reads_the_same_rows_when_its_objects_were_compacted_and_deleted(
    broker: Broker,
) -> None:
    broker.create("moving", 3, lakelog_table_freshness_ms="0")
    for partition in range(3):
        broker.produce("moving", [b"v%d" % at for at in range(400)], partition=partition)
    partitions = planned(broker, "moving", minPartitions="4")
    before = all_rows(partitions)
    broker.compact()
    assert broker.kinds("moving", 3) == [[FileKind.PARQUET]] * 3
    for path in wal_objects(broker):
        path.unlink()
    assert before.num_rows == 1200
    assert all_rows(partitions).equals(before)


@pytest.fixture
def trimmed(broker: Broker) -> str:
    """A topic of which the first half is going to be deleted."""
    name = f"trimmed{len(broker.running.address.host)}-{os.urandom(3).hex()}"
    broker.create(name, 1, lakelog_table_freshness_ms="0")
    broker.produce(name, [b"v%d" % at for at in range(100)])
    return name


def trim(broker: Broker, topic: str, offset: int) -> None:
    """Delete what lies before the offset, also its objects."""
    admin = AdminClient({"bootstrap.servers": str(broker.running.address)})
    for done in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        done.result(30)
    broker.compact()
    for path in wal_objects(broker):
        path.unlink()


def test_what_retention_took_meanwhile_is_an_error_that_says_so(
    broker: Broker, trimmed: str
) -> None:
    partitions = planned(broker, trimmed)
    trim(broker, trimmed, 60)
    with pytest.raises(DataLoss, match="the log begins at 60 now; set failOnDataLoss to false"):
        all_rows(partitions)


def test_what_retention_took_meanwhile_is_left_out_if_that_may_be(
    broker: Broker, trimmed: str, caplog: pytest.LogCaptureFixture
) -> None:
    partitions = planned(broker, trimmed, failOnDataLoss="false")
    trim(broker, trimmed, 60)
    assert all_rows(partitions)["offset"].to_pylist() == list(range(60, 100))
    assert "begins at 60 now" in caplog.text


def test_a_damaged_object_is_named(broker: Broker) -> None:
    broker.create("damaged")
    broker.produce("damaged", [b"a value of its own" * 9], codec="none")
    key = damage(broker, b"a value of its own")
    with pytest.raises(Corrupt, match=re.escape(key)):
        all_rows(planned(broker, "damaged"))


def test_a_read_that_is_given_up_leaves_nothing_running(broker: Broker) -> None:
    broker.create("long")
    broker.produce("long", [bytes(1000)] * 40_000)
    (partition, *_) = planned(broker, "long")
    rows = read(partition)
    first = next(rows)
    assert 0 < first.nbytes <= BATCH_BYTES_MAX
    assert runtime()._tasks._running
    assert hasattr(rows, "close")
    rows.close()
    assert not runtime()._tasks._running


def test_sparks_own_stand_in_for_an_empty_plan_has_no_rows() -> None:
    assert list(read(InputPartition(None))) == []


def test_a_partition_of_many_ranges_is_small_when_it_travels(broker: Broker) -> None:
    broker.create("wide", 100)
    for partition in range(100):
        broker.produce("wide", [b"x"], partition=partition)
    (only,) = planned(broker, "wide")
    assert isinstance(only, SplitPartition)
    assert len(only.split.ranges) == 100
    assert len(pickle.dumps(only)) < 15_000


IMPORTS = """
import sys, pickle
import pyspark_lakelog
heavy = {"pyarrow", "pyiceberg", "obstore", "numpy"} & set(sys.modules)
assert not heavy, heavy
source = pyspark_lakelog.DefaultSource({"subscribe": "t", "lakelog.server": "http://127.0.0.1:1"})
assert source.name() == "lakelog"
assert len(pickle.dumps(source)) < 1000
heavy = {"pyarrow", "pyiceberg"} & set(sys.modules)
assert not heavy, heavy
from lakelog.spark.batch_reader import batch_reader
from pyspark.sql.types import StructType
for name in "key value topic partition offset timestamp timestampType".split():
    assert name in source.schema()
reader = source.reader(StructType().add("offset", "long").add("value", "binary"))
assert len(pickle.dumps(reader)) < 2000
heavy = {"pyiceberg", "obstore"} & set(sys.modules)
assert not heavy, heavy
"""


def test_the_module_that_spark_looks_for_loads_nothing_heavy_and_does_no_io() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
