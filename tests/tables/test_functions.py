"""Snapshots, offsets and groups of a real broker, with rounds of the pipeline beside it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from tests.lake.running import Broker, running_broker
from tests.tables.stage import FRESH, compact, grow, history_keys, tidied

import lakelog
from lakelog import tables
from lakelog.config.named_options import BadOption
from lakelog.model.failures import Unavailable


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("data")) as made:
        made.create("grown", 2, **FRESH)
        grow(made, "grown", 6)
        yield made


def committed(broker: Broker, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": str(broker.running.address), "group.id": group})
    try:
        places = [TopicPartition(topic, one, offset) for one, offset in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)
    finally:
        consumer.close()


def values(table: object) -> list[bytes]:
    found: list[bytes] = table["value"].to_pylist()  # type: ignore[index]  # pyarrow has no types
    return found


def test_every_snapshot_is_there_with_its_offsets_though_the_table_has_but_two(
    broker: Broker,
) -> None:
    found = tables.snapshots("grown", server=broker.server)
    assert [one.offsets for one in found] == [{0: 3 * (n + 1), 1: -2} for n in range(6)]
    assert [one.is_live for one in found] == [False] * 4 + [True] * 2
    assert {one.operation for one in found} == {"append"}
    assert len({one.id for one in found}) == 6
    times = [one.time for one in found]
    assert times == sorted(times)
    assert all(timedelta(0) <= datetime.now(UTC) - one < timedelta(minutes=5) for one in times)
    newest = tables.snapshots("grown", server=broker.server, limit=3)
    assert newest == found[3:]
    assert tables.snapshots("grown", server=broker.server, limit=0) == ()


def test_reading_goes_on_where_a_snapshot_ends(broker: Broker) -> None:
    first, *_ = tables.snapshots("grown", server=broker.server)
    ends = tables.offsets("grown", first.id, server=broker.server)
    assert ends == first.offsets == {0: 3, 1: -2}
    assert ends.as_mapping() == {0: 3, 1: OFFSET_BEGINNING}
    assert json.loads(ends.as_spark()) == {"grown": {"0": 3, "1": -2}}
    rows = lakelog.read("grown", server=broker.server, starting=ends)
    assert rows["offset"].to_pylist() == list(range(3, 18))
    options = {"startingOffsets": ends.as_spark()}
    assert lakelog.read("grown", server=broker.server, options=options) == rows


def test_a_consumer_goes_on_where_a_snapshot_ends(broker: Broker) -> None:
    snapshot = tables.snapshots("grown", server=broker.server)[4]
    ends = tables.offsets("grown", snapshot.id, server=broker.server)
    consumer = Consumer({"bootstrap.servers": str(broker.running.address), "group.id": "g"})
    try:
        consumer.assign([TopicPartition("grown", *place) for place in ends.items()])
        message = consumer.poll(10)
        assert message is not None
        assert (message.error(), message.partition(), message.offset()) == (None, 0, 15)
    finally:
        consumer.close()


def test_a_snapshot_is_found_by_offsets_and_by_time(broker: Broker) -> None:
    found = tables.snapshots("grown", server=broker.server)
    for number, one in enumerate(found):
        for extra in (0, 2):
            offsets = {0: 3 * (number + 1) + extra, 1: 99}
            assert tables.snapshot_at("grown", offsets=offsets, server=broker.server) == one
        assert tables.snapshot_at("grown", time=one.time, server=broker.server) in found[number:]
    later = datetime.now(UTC) + timedelta(days=1)
    assert tables.snapshot_at("grown", time=later, server=broker.server) == found[-1]
    assert tables.snapshot_at("grown", offsets={0: -1}, server=broker.server) == found[-1]
    for early in ({0: 2}, {}, {0: -2}, {1: 100}):
        with pytest.raises(tables.NoSnapshot, match=str(found[0].id)):
            tables.snapshot_at("grown", offsets=early, server=broker.server)
    with pytest.raises(tables.NoSnapshot, match="at or before 1999"):
        tables.snapshot_at("grown", time=datetime(1999, 1, 1, tzinfo=UTC), server=broker.server)


def test_the_table_as_a_group_has_seen_it(broker: Broker) -> None:
    committed(broker, "billing", "grown", {0: 7})
    seen = tables.seen_by("grown", "billing", server=broker.server)
    assert seen == {0: 7, 1: -2}
    snapshot = tables.snapshot_at("grown", offsets=seen, server=broker.server)
    assert snapshot.offsets[0] == 6
    rows = tables.read_seen("grown", "billing", columns=["offset", "value"], server=broker.server)
    assert rows.column_names == ["offset", "value"]
    assert rows["offset"].to_pylist() == list(range(7))
    whole = lakelog.read("grown", server=broker.server)
    assert tables.read_seen("grown", "billing", server=broker.server) == whole.slice(0, 7)


def test_a_group_that_has_seen_nothing_that_is_left_gets_no_rows(broker: Broker) -> None:
    committed(broker, "slow", "grown", {0: 0, 1: 0})
    assert tables.seen_by("grown", "slow", server=broker.server) == {0: 0, 1: 0}
    rows = tables.read_seen("grown", "slow", server=broker.server)
    assert rows.num_rows == 0
    assert rows.schema == lakelog.read("grown", server=broker.server).schema


def test_a_group_that_committed_beyond_the_end_has_seen_everything(broker: Broker) -> None:
    committed(broker, "eager", "grown", {0: 1000, 1: 5})
    rows = tables.read_seen("grown", "eager", columns=["offset"], server=broker.server)
    assert rows["offset"].to_pylist() == list(range(18))


def test_what_is_not_there_is_named(broker: Broker) -> None:
    broker.create("rows", lakelog_format="kfs")
    broker.create("empty")
    committed(broker, "elsewhere", "empty", {0: 0})
    server = broker.server
    with pytest.raises(tables.UnknownTopic, match="absent"):
        tables.snapshots("absent", server=server)
    with pytest.raises(tables.UnknownTopic, match="absent"):
        tables.seen_by("absent", "billing", server=server)
    with pytest.raises(tables.NoTable, match=r"rows has no table: its lakelog\.format"):
        tables.offsets("rows", 1, server=server)
    with pytest.raises(tables.UnknownSnapshot, match=r"snapshot 17: .*history\.ms"):
        tables.offsets("grown", 17, server=server)
    with pytest.raises(tables.UnknownGroup, match="nobody"):
        tables.seen_by("grown", "nobody", server=server)
    with pytest.raises(tables.NothingCommitted, match="'elsewhere' has committed nothing in grown"):
        tables.read_seen("grown", "elsewhere", server=server)
    assert tables.snapshots("empty", server=server) == ()
    with pytest.raises(tables.NoSnapshot, match="no snapshot of the table of empty is known"):
        tables.snapshot_at("empty", offsets={0: 1}, server=server)
    with pytest.raises(Unavailable, match="no broker answers"):
        tables.snapshots("grown", server="http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({}, "offsets"),
        ({"offsets": {0: 1}, "time": datetime.now(UTC)}, "offsets"),
        ({"time": datetime(2024, 1, 1)}, "time"),  # noqa: DTZ001 - what is tested
        ({"offsets": {0: "5"}}, "offsets"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(given: dict[str, object], option: str) -> None:
    with pytest.raises(BadOption) as caught:
        tables.snapshot_at("t", server="http://127.0.0.1:1", **given)  # type: ignore[arg-type]  # meant
    assert caught.value.option == option
    with pytest.raises(BadOption, match=r"lakelog\.server"):
        tables.snapshots("t")
    with pytest.raises(BadOption, match="limit"):
        tables.snapshots("t", server="http://127.0.0.1:1", limit=-1)


def test_a_configuration_file_leads_to_a_broker_too(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "lakelog.toml"
    file.write_text(f'[broker]\ndata = "{broker.options.broker.data}"\n')
    assert len(tables.snapshots("grown", config=str(file))) == 6


def test_partitions_that_came_later_begin_at_their_beginning(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as broker:
        broker.create("t", 2, **FRESH)
        grow(broker, "t", 1)
        grow(broker, "t", 1, partition=1)
        first, second = tables.snapshots("t", server=broker.server)
        assert first.offsets == {0: 3, 1: -2}
        assert second.offsets == {0: 3, 1: 3}
        rows = lakelog.read("t", server=broker.server, starting=first.offsets)
        assert rows["partition"].to_pylist() == [1, 1, 1]


def test_a_limit_forgets_and_no_history_remembers_nothing(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as broker:
        broker.create("short", 1, lakelog_snapshots_history_ms="0", **FRESH)
        broker.create("long", 1, lakelog_snapshots_history_ms="-1", **FRESH)
        for name in ("short", "long"):
            grow(broker, name, 4)
        server = broker.server
        gone = tables.snapshots("long", server=server)[0]
        short = tables.snapshots("short", server=server)
        assert [one.is_live for one in short] == [True, True]
        assert len(tables.snapshots("long", server=server)) == 4
        assert tables.offsets("long", gone.id, server=server) == {0: 3}
        (report,) = tidied(broker)
        assert report.problems == ()
        assert len(tables.snapshots("long", server=server)) == 4
        assert tables.snapshots("short", server=server) == short
        with pytest.raises(tables.NoSnapshot):
            tables.snapshot_at("short", offsets={0: 3}, server=server)


def test_of_a_deleted_topic_nothing_is_left_and_its_name_begins_anew(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as broker:
        broker.create("t", 1, **FRESH)
        broker.create("other", 1, **FRESH)
        grow(broker, "t", 4)
        grow(broker, "other", 4)
        committed(broker, "g", "t", {0: 3})
        before = history_keys(broker)
        kept = list(tables.snapshots("other", server=broker.server))
        broker.delete("t")
        with pytest.raises(tables.UnknownTopic):
            tables.snapshots("t", server=broker.server)
        broker.create("t", 1, **FRESH)
        assert tables.snapshots("t", server=broker.server) == ()
        with pytest.raises((tables.NothingCommitted, tables.UnknownGroup)):
            tables.seen_by("t", "g", server=broker.server)
        compact(broker)
        first, second, third = tidied(broker, passes=3)
        assert (first.topics, second.topics, third.topics) == (0, 1, 0)
        left = history_keys(broker)
        assert len(left) == len(before) // 2
        assert set(left) < set(before)
        assert list(tables.snapshots("other", server=broker.server)) == kept
        grow(broker, "t", 3)
        assert [one.offsets for one in tables.snapshots("t", server=broker.server)] == [
            {0: 3},
            {0: 6},
            {0: 9},
        ]


def test_a_table_in_another_catalog_tells_the_same(tmp_path: Path) -> None:
    external = {"tables.catalog": "sql", "tables.options.uri": f"sqlite:///{tmp_path / 'c.db'}"}
    with running_broker(tmp_path / "data", external) as broker:
        broker.create("t", 2, **FRESH)
        grow(broker, "t", 5, catalog=tmp_path / "c.db")
        found = tables.snapshots("t", server=broker.server)
        assert [one.offsets for one in found] == [{0: 3 * (n + 1), 1: -2} for n in range(5)]
        assert [one.is_live for one in found] == [False] * 3 + [True] * 2
        assert tables.offsets("t", found[0].id, server=broker.server) == {0: 3, 1: -2}
        at = tables.snapshot_at("t", offsets={0: 13}, server=broker.server)
        assert at == found[3]
