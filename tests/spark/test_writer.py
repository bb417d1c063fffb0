"""The writer of batches as Spark calls it, without Spark: tasks put, the driver commits."""

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.types import ArrayType, StructType
from tests.lake.running import Broker, running_broker

import lakelog
from lakelog.config.named_options import BadOption
from lakelog.lake.write.write_options import BadRow
from lakelog.model.failures import Refused
from lakelog.spark.writer import BatchWriter, StreamWriter, TaskWritten, batch_writer, stream_writer

HEADER = StructType().add("key", "string").add("value", "binary")
SCHEMA = StructType().add("key", "string").add("value", "binary").add("headers", ArrayType(HEADER))


def writer_to(broker: Broker, topic: str, **options: str) -> BatchWriter:
    given = {"lakelog.server": broker.server, "topic": topic, **options}
    made = batch_writer(given, SCHEMA, overwrite=False)
    assert isinstance(made, BatchWriter)
    return made


def rows_of(values: Sequence[bytes]) -> pa.RecordBatch:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [[{"key": "n", "value": value}, {"key": "z", "value": None}] for value in values]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([f"k{len(value)}" for value in values], pa.string()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers, kind),
        }
    )


def keyless(values: Sequence[bytes]) -> pa.RecordBatch:
    rows = rows_of(values)
    return rows.set_column(0, "key", pa.nulls(len(values), pa.string()))


def values_in(broker: Broker, topic: str) -> list[bytes]:
    table = lakelog.read(topic, server=broker.server, columns=["value"])
    return sorted(table["value"].to_pylist())


def wal_objects(broker: Broker) -> set[Path]:
    return {path for path in Path(broker.options.broker.data).rglob("*.wo") if path.is_file()}


def test_what_tasks_put_is_seen_only_when_the_driver_commits(broker: Broker) -> None:
    broker.create("put", 3)
    writer = writer_to(broker, "put")
    tasks = [writer.write(iter([rows_of([b"%d" % number] * 3)])) for number in range(4)]
    assert values_in(broker, "put") == []
    carried: list[TaskWritten] = pickle.loads(pickle.dumps(tasks))
    pickle.loads(pickle.dumps(writer)).commit(carried)
    assert values_in(broker, "put") == sorted([b"0", b"1", b"2", b"3"] * 3)


def test_writers_and_messages_are_small(broker: Broker) -> None:
    broker.create("small", 1)
    writer = writer_to(broker, "small")
    assert len(pickle.dumps(writer)) < 10_000
    message = writer.write(iter([rows_of([bytes(1000)] * 1000)]))
    assert len(pickle.dumps(message)) < 2_000
    writer.abort([message, None])


def test_a_kafka_consumer_sees_keys_values_and_headers(broker: Broker) -> None:
    broker.create("seen", 1)
    writer = writer_to(broker, "seen", **{"kafka.compression.type": "zstd"})
    writer.commit([writer.write(iter([rows_of([b"a", b"bb"])]))])
    consumer = Consumer({"bootstrap.servers": str(broker.running.address), "group.id": "seen"})
    consumer.assign([TopicPartition("seen", 0, 0)])
    try:
        found = [consumer.poll(10) for _ in range(2)]
    finally:
        consumer.close()
    assert [(one.offset(), one.key(), one.value(), one.headers()) for one in found if one] == [
        (0, b"k1", b"a", [("n", b"a"), ("z", None)]),
        (1, b"k2", b"bb", [("n", b"bb"), ("z", None)]),
    ]


def test_no_row_is_no_object_and_no_commit(broker: Broker) -> None:
    before = wal_objects(broker)
    writer = writer_to(broker, "never-made")
    messages = [writer.write(iter([])), writer.write(iter([rows_of([])]))]
    writer.commit(messages)
    assert [one.placed for one in messages] == [(), ()]
    assert wal_objects(broker) == before


def test_an_abort_deletes_only_what_no_commit_can_have_named(broker: Broker) -> None:
    broker.create("aborted", 1)
    before = wal_objects(broker)
    writer = writer_to(broker, "aborted")
    message = writer.write(iter([rows_of([b"x"])]))
    (there,) = wal_objects(broker) - before
    writer.abort([message])  # every task ended: this abort may follow a commit of unknown outcome
    assert there.exists()
    writer.abort([None, message])
    assert not there.exists()
    writer.abort([None])
    writer.abort([])


def test_a_task_that_fails_leaves_no_object(broker: Broker) -> None:
    broker.create("failing", 1, max_message_bytes="2000")
    before = wal_objects(broker)
    writer = writer_to(broker, "failing", **{"kafka.compression.type": "none"})
    with pytest.raises(BadRow, match="the topic failing allows 2000"):
        writer.write(iter([rows_of([b"good"]), rows_of([bytes(3000)])]))
    assert wal_objects(broker) == before


def test_a_topic_that_is_deleted_before_the_commit_is_named(broker: Broker) -> None:
    broker.create("gone", 1)
    writer = writer_to(broker, "gone")
    message = writer.write(iter([rows_of([b"x"])]))
    broker.delete("gone")
    with pytest.raises(Refused, match=r"delete|gone|exist"):
        writer.commit([message])


def test_a_topic_that_is_not_there_is_made_where_a_producer_would_have_it_made(
    broker: Broker, tmp_path: Path
) -> None:
    writer = writer_to(broker, "made")
    writer.commit([writer.write(iter([rows_of([b"x"])]))])
    assert values_in(broker, "made") == [b"x"]
    with pytest.raises(BadRow, match="the topic no such name does not exist"):
        writer_to(broker, "no such name").write(iter([rows_of([b"x"])]))
    with running_broker(tmp_path, {"topics.auto_create": "false"}) as strict:
        writer = writer_to(strict, "nowhere")
        with pytest.raises(BadRow, match="the topic nowhere does not exist"):
            writer.write(iter([rows_of([b"x"])]))


def test_a_job_that_runs_twice_under_one_version_writes_once(broker: Broker) -> None:
    broker.create("written-once", 2)
    for version in ("1", "1", "2", "1"):
        writer = writer_to(broker, "written-once", txnAppId="load", txnVersion=version)
        writer.commit([writer.write(iter([rows_of([version.encode()])]))])
    assert values_in(broker, "written-once") == [b"1", b"2"]


def test_a_repeat_in_another_order_completes_what_reached_only_some_domains(
    tmp_path: Path,
) -> None:
    values = [b"%d" % number for number in range(200)]
    with running_broker(tmp_path, {"metadata.domains": "3"}) as broker:
        broker.create("spread", 24)
        first = writer_to(broker, "spread", txnAppId="a", txnVersion="1")
        task = first.write(iter([keyless(values)]))
        assert {one.domain for one in task.placed} == {0, 1, 2}
        reached = tuple(one for one in task.placed if one.domain != 1)
        first.commit([TaskWritten(task.transaction, reached)])  # then the driver went down
        assert 0 < len(values_in(broker, "spread")) < 200
        again = writer_to(broker, "spread", txnAppId="a", txnVersion="1")
        parts = values[150:] + values[:70], values[70:150][::-1]
        again.commit([again.write(iter([keyless(part)])) for part in parts])
        assert values_in(broker, "spread") == sorted(values)


def test_jobs_without_a_name_write_each_time_in_whatever_order_they_end(broker: Broker) -> None:
    broker.create("each", 1)
    writers = [writer_to(broker, "each") for _ in range(3)]
    tasks = [writer.write(iter([rows_of([b"x"])])) for writer in writers]
    for writer, task in reversed(list(zip(writers, tasks, strict=True))):
        writer.commit([task])
    assert values_in(broker, "each") == [b"x"] * 3


def test_overwrite_is_refused_with_what_to_do() -> None:
    options = {"lakelog.server": "http://h:1", "topic": "t"}
    with pytest.raises(BadOption, match=r'mode\("append"\)'):
        batch_writer(options, SCHEMA, overwrite=True)


def test_a_stream_in_complete_mode_appends_as_to_kafka() -> None:
    options = {"lakelog.server": "http://h:1", "topic": "t"}
    assert isinstance(stream_writer(options, SCHEMA, overwrite=True), StreamWriter)


@pytest.mark.parametrize(
    ("columns", "options", "named"),
    [
        ({"key": "string"}, {"topic": "t"}, "value"),
        ({"value": "integer"}, {"topic": "t"}, "value"),
        ({"value": "string"}, {}, "topic"),
        ({"value": "string", "header": "string"}, {"topic": "t"}, "header"),
        ({"value": "string"}, {"topic": "t", "topicc": "t"}, "topicc"),
    ],
)
def test_wrong_columns_and_options_are_refused_before_any_task(
    columns: Mapping[str, str], options: Mapping[str, str], named: str
) -> None:
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    with pytest.raises(BadOption) as caught:
        batch_writer({"lakelog.server": "http://h:1", **options}, schema, overwrite=False)
    assert caught.value.option == named
