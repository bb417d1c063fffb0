"""The consumer against a broker of ours: what its users rely on, one claim after the other."""

import random

import pyarrow as pa
import pytest
from tests.client.feeding import (
    FIRST_MS,
    Fed,
    assert_in_order,
    create_topic,
    even,
    feed,
    keys_of,
    poll_rows,
    prime,
    reading,
)
from tests.client.proof import prove

from lakelog.client import (
    MESSAGE_SCHEMA,
    PARTITION_STATE_SCHEMA,
    SourceTopic,
)
from lakelog.clock import SystemClock
from lakelog.kafka_client.failures import BadConfig

GROUP = {"group.id": "readers"}


def test_messages_are_released_in_timestamp_order_across_partitions(
    bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic, 8)
    records = even(8, 2000)
    random.Random(5).shuffle(records)
    records.sort(key=lambda record: record.timestamp_ms // 5000)  # late by 5 s at most
    feed(bootstrap, topic, records)
    with reading(bootstrap, SourceTopic.from_earliest(topic), out_of_order_ms=5000) as manager:
        rows = prime(manager)
        assert manager.metrics().rows_late == 0
    assert rows.num_rows == 2000
    assert_in_order(rows)


def test_a_topic_that_is_hard_to_order_comes_twice_in_exact_order(
    bootstrap: str, topic: str
) -> None:
    outcomes = prove(bootstrap, 60_000, topic)
    assert [each.rows for each in outcomes] == [60_000, 60_000]


def test_the_loop_of_poll_and_is_live_loses_nothing(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 4)
    feed(bootstrap, topic, even(4, 1000))
    with reading(bootstrap, SourceTopic.from_earliest(topic), batch_size=7) as manager:
        rows = 0
        while True:
            batch = manager.poll(timeout_ms=10_000)
            assert batch.num_rows <= 7
            rows += batch.num_rows
            if manager.is_live():
                break
    assert rows == 1000


def test_the_schema_is_kafkars_schema_with_headers_behind_it(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    headers = [("trace", b"\x01"), ("trace", None), ("empty", b"")]
    feed(
        bootstrap,
        topic,
        [Fed(0, FIRST_MS, b"v", b"k", headers), Fed(0, FIRST_MS + 1, None, None), Fed(0, 5, b"")],
    )
    assert [field.name for field in MESSAGE_SCHEMA][:6] == [
        *("key", "value", "topic", "partition", "offset", "timestamp")
    ]
    with reading(bootstrap, SourceTopic.from_earliest(topic), ordered=False) as manager:
        rows = prime(manager)
    assert rows.schema.equals(MESSAGE_SCHEMA)
    assert rows.column("key").to_pylist() == [b"k", None, None]
    assert rows.column("value").to_pylist() == [b"v", None, b""]
    assert rows.column("headers").to_pylist() == [
        [{"key": name, "value": value} for name, value in headers],
        [],
        [],
    ]
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [FIRST_MS, FIRST_MS + 1, 5]


def test_ties_go_by_topic_partition_and_offset(bootstrap: str, topic: str) -> None:
    for name in (f"{topic}-b", f"{topic}-a"):
        create_topic(bootstrap, name, 3)
        feed(bootstrap, name, [Fed(at % 3, FIRST_MS, b"%d" % at) for at in range(30)])
    sources = [SourceTopic.from_earliest(f"{topic}-{name}") for name in "ba"]
    with reading(bootstrap, *sources) as manager:
        rows = prime(manager)
    assert rows.num_rows == 60
    assert_in_order(rows)


def test_an_empty_topic_is_live_at_once(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 3)
    with reading(bootstrap, SourceTopic.from_earliest(topic)) as manager:
        assert manager.is_live()
        assert manager.poll(0).num_rows == 0
        assert manager.priming_watermark_ms() is None


def test_end_offsets_are_those_of_the_beginning(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    feed(bootstrap, topic, even(1, 10))
    with reading(bootstrap, SourceTopic.from_earliest(topic)) as manager:
        assert prime(manager).num_rows == 10
        feed(bootstrap, topic, [Fed(0, FIRST_MS - 5, b"later")])
        assert poll_rows(manager, 1).column("value").to_pylist() == [b"later"]
        state = manager.partition_state().to_pylist()[0]
    assert (state["replay_start_offset"], state["replay_end_offset"]) == (0, 10)
    assert (state["consumed_offset"], state["released_offset"]) == (10, 10)


def test_latest_gives_only_what_comes_from_now_on(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2)
    feed(bootstrap, topic, even(2, 10))
    with reading(bootstrap, SourceTopic.from_latest(topic)) as manager:
        assert manager.is_live()
        assert manager.poll(50).num_rows == 0
        feed(bootstrap, topic, [Fed(1, FIRST_MS, b"new")])
        assert poll_rows(manager, 1).column("value").to_pylist() == [b"new"]


def test_absolute_time_begins_at_the_first_record_of_that_time(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2)
    feed(bootstrap, topic, even(2, 100))
    source = SourceTopic.from_absolute_time(topic, FIRST_MS + 501)
    with reading(bootstrap, source) as manager:
        rows = prime(manager)
    assert min(rows["timestamp"].cast(pa.int64()).to_pylist()) == FIRST_MS + 510
    assert rows.num_rows == 49


def test_a_time_after_the_last_record_begins_at_the_end(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2)
    feed(bootstrap, topic, even(2, 10))
    with reading(bootstrap, SourceTopic.from_absolute_time(topic, FIRST_MS + 10**9)) as manager:
        assert manager.is_live()
        feed(bootstrap, topic, [Fed(0, FIRST_MS, b"new")])
        assert poll_rows(manager, 1).column("value").to_pylist() == [b"new"]


class PastClock(SystemClock):
    """The machine's clock, set back to when the test's records were written."""

    def now_ms(self) -> int:
        return FIRST_MS + 1000


def test_relative_time_counts_back_from_now(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    feed(bootstrap, topic, even(1, 100))
    source = SourceTopic.from_relative_time(topic, 300)
    with reading(bootstrap, source, clock=PastClock()) as manager:
        assert prime(manager).num_rows == 30


def test_committed_goes_on_where_the_group_was(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2)
    feed(bootstrap, topic, even(2, 100))
    source = SourceTopic.from_committed(topic)
    with reading(bootstrap, source, config=GROUP, batch_size=30) as manager:
        first = poll_rows(manager, 30)
        committed = manager.commit()
        assert manager.committed() == committed
        assert sum(committed.values()) == first.num_rows
    with reading(bootstrap, source, config=GROUP) as manager:
        rest = prime(manager)
    assert sorted(keys_of(first) + keys_of(rest)) == keys_of(pa.concat_tables([first, rest]))
    assert first.num_rows + rest.num_rows == 100


def test_a_commit_never_covers_what_was_not_given_out(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    times = [50, 10, 40, 20, 30]
    feed(bootstrap, topic, [Fed(0, FIRST_MS + time, b"%d" % time) for time in times])
    source = SourceTopic.from_earliest(topic)
    with reading(bootstrap, source, config={"group.id": topic}, batch_size=1) as manager:
        given_out: set[int] = set()
        offset = 0
        while not manager.is_live():
            given_out |= set(manager.poll(10_000).column("offset").to_pylist())
            (offset,) = manager.commit().values()
            assert set(range(offset)) <= given_out
        assert offset == 5


def test_a_commit_needs_a_group(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    with (
        reading(bootstrap, SourceTopic.from_earliest(topic)) as manager,
        pytest.raises(BadConfig, match=r"group\.id"),
    ):
        manager.commit()
    with (
        pytest.raises(BadConfig, match=r"group\.id"),
        reading(bootstrap, SourceTopic.from_committed(topic)),
    ):
        pass


def test_a_cutoff_makes_partitions_live_before_their_end(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2)
    feed(bootstrap, topic, even(2, 1000))
    source = SourceTopic.from_earliest(topic)
    cutoff_ms = FIRST_MS + 2000
    with reading(
        bootstrap,
        source,
        cutoff_ms=cutoff_ms,
        out_of_order_ms=0,
        batch_size=20,
        config={"max.partition.fetch.bytes": 1000},
    ) as manager:
        rows = prime(manager)
        state = manager.partition_state().to_pylist()
    assert all(each["is_live"] for each in state)
    times = rows["timestamp"].cast(pa.int64()).to_pylist()
    assert max(times) >= cutoff_ms
    assert times == sorted(times)


def test_partition_state_has_the_columns_of_kafkars(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2)
    feed(bootstrap, topic, [Fed(1, FIRST_MS + at, b"v") for at in range(10)])
    with reading(bootstrap, SourceTopic.from_earliest(topic), batch_size=4) as manager:
        poll_rows(manager, 4)
        state = manager.partition_state()
        lag = manager.lag()
    assert state.schema.equals(PARTITION_STATE_SCHEMA)
    empty, some = state.to_pylist()
    assert (empty["partition"], empty["is_live"], empty["lag"]) == (0, True, 0)
    assert (some["consumed_offset"], some["released_offset"]) == (9, 3)
    assert (some["is_live"], some["is_paused"], some["high_watermark"]) == (False, False, 10)
    assert lag == {(topic, 0): 0, (topic, 1): 6}


def test_a_full_memory_pauses_partitions_and_bounds_what_is_held(
    bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic, 4)
    late = [Fed(0, FIRST_MS + at, bytes(100)) for at in range(4000)]
    ahead = [Fed(at % 3 + 1, FIRST_MS + 10**6 + at, bytes(100)) for at in range(12_000)]
    feed(bootstrap, topic, [*late, *ahead], batch_size=5000)
    held = paused = 0
    with reading(
        bootstrap,
        SourceTopic.from_earliest(topic),
        batch_size=500,
        max_held_messages=3000,
        out_of_order_ms=0,
        config={"max.partition.fetch.bytes": 8000},
    ) as manager:
        batches = []
        while not manager.is_live():
            batches.append(manager.poll(10_000))
            held = max(held, manager.held_message_count())
            paused = max(paused, manager.paused_partition_count())
        metrics = manager.metrics()
    rows = pa.Table.from_batches(batches)
    assert rows.num_rows == 16_000
    assert_in_order(rows)
    assert paused > 0
    assert metrics.partitions_paused >= paused
    assert metrics.partitions_paused - metrics.partitions_resumed == metrics.paused_partitions
    assert held <= 3000
    assert metrics.rows_late == 0


def test_a_squeeze_keeps_the_bound_and_counts_what_is_late(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2)
    records = [Fed(at % 2, FIRST_MS + at, bytes(50)) for at in range(20_000)]
    feed(bootstrap, topic, records, batch_size=5000)
    with reading(
        bootstrap,
        SourceTopic.from_earliest(topic),
        max_held_messages=2000,
        out_of_order_ms=10**9,
        config={"max.partition.fetch.bytes": 5000},
    ) as manager:
        rows = prime(manager)
        metrics = manager.metrics()
    assert rows.num_rows == 20_000
    assert_in_order(rows)
    assert metrics.squeezes > 0
    assert metrics.rows_late == 0  # nothing was out of order


def test_every_codec_is_read(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 5)
    for partition, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        feed(
            bootstrap,
            topic,
            [Fed(partition, FIRST_MS + at, b"same" * 20) for at in range(200)],
            compression_type=codec,
        )
    with reading(bootstrap, SourceTopic.from_earliest(topic)) as manager:
        rows = prime(manager)
    assert rows.num_rows == 1000
    assert_in_order(rows)
    assert set(rows["value"].to_pylist()) == {b"same" * 20}
