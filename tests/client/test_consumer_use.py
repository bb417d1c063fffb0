"""The consumer in use: its shapes, its loops, its seeks, its counters, and its end."""

import asyncio
import gc
import subprocess
import sys
import threading
from typing import Any

import pyarrow as pa
import pytest
from tests.client.feeding import (
    FIRST_MS,
    Fed,
    create_topic,
    even,
    feed,
    keys_of,
    poll_rows,
    prime,
    reading,
)

from lakelog.client import ConsumerManager, SourceTopic
from lakelog.kafka_client.failures import BadConfig, ClientFailure, Closed


def test_without_order_each_partition_stays_in_order(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 4)
    feed(bootstrap, topic, even(4, 1000))
    with reading(bootstrap, SourceTopic.from_earliest(topic), ordered=False) as manager:
        rows = prime(manager)
    offsets: dict[int, list[int]] = {}
    for _, _, partition, offset in keys_of(rows):
        offsets.setdefault(partition, []).append(offset)
    assert offsets == {partition: list(range(250)) for partition in range(4)}


def test_views_and_no_headers_are_choices(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    feed(bootstrap, topic, [Fed(0, FIRST_MS, b"v" * 50, b"k", [("a", b"b")])])
    with reading(bootstrap, SourceTopic.from_earliest(topic), views=True, headers=False) as manager:
        rows = prime(manager)
    assert "headers" not in rows.column_names
    assert rows.schema.field("value").type == pa.binary_view()
    assert rows["value"].to_pylist() == [b"v" * 50]


def test_a_plain_for_loop_gives_batches_until_it_is_closed(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    feed(bootstrap, topic, even(1, 100))
    rows = 0
    with reading(bootstrap, SourceTopic.from_earliest(topic), batch_size=10) as manager:
        for batch in manager:
            assert 0 < batch.num_rows <= 10
            rows += batch.num_rows
            if rows == 100:
                manager.close()
    assert rows == 100


def test_async_iteration_gives_batches_until_it_is_closed(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)

    async def read(manager: ConsumerManager) -> int:
        rows = 0
        async for batch in manager:
            rows += batch.num_rows
            if rows == 10:
                manager.close()
        return rows

    with reading(bootstrap, SourceTopic.from_latest(topic)) as manager:
        feed(bootstrap, topic, even(1, 10))
        assert asyncio.run(read(manager)) == 10


def test_priming_ends_when_everything_is_live(
    bootstrap: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(bootstrap, topic, 2)
    feed(bootstrap, topic, even(2, 50))
    for progress in (False, True):
        with reading(bootstrap, SourceTopic.from_earliest(topic), batch_size=20) as manager:
            rows = sum(batch.num_rows for batch in manager.priming(progress=progress))
            assert rows == 50
            assert manager.is_live()
    assert "50 rows" in capsys.readouterr().out


def test_a_close_ends_a_poll_that_waits(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    heard: list[str] = []
    with reading(bootstrap, SourceTopic.from_earliest(topic)) as manager:

        def wait() -> None:
            try:
                manager.poll(60_000)
            except Closed:
                heard.append("closed")

        waiting = threading.Thread(target=wait)
        waiting.start()
        manager.close()
        manager.close()
        waiting.join(10)
    assert heard == ["closed"]
    with pytest.raises(Closed):
        manager.poll(0)
    with pytest.raises(Closed):
        manager.seek({(topic, 0): 0})


def test_a_seek_reads_again_and_drops_what_is_held(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2)
    feed(bootstrap, topic, even(2, 100))
    with reading(bootstrap, SourceTopic.from_earliest(topic), batch_size=10) as manager:
        poll_rows(manager, 10)
        manager.seek({(topic, 0): 48, (topic, 1): 49})
        rows = prime(manager)
        manager.seek({(topic, 1): 40})
        again = poll_rows(manager, 10)
    assert [(partition, offset) for _, _, partition, offset in keys_of(rows)] == [
        (0, 48),
        (0, 49),
        (1, 49),
    ]
    assert {(partition, offset) for _, _, partition, offset in keys_of(again)} == {
        (1, offset) for offset in range(40, 50)
    }


def test_a_seek_to_nowhere_is_refused(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    with reading(bootstrap, SourceTopic.from_earliest(topic)) as manager:
        with pytest.raises(BadConfig, match="not read here"):
            manager.seek({(topic, 7): 0})
        with pytest.raises(BadConfig, match="less than 0"):
            manager.seek({(topic, 0): -1})


def test_metrics_count_what_happened(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    feed(bootstrap, topic, even(1, 100))
    with reading(bootstrap, SourceTopic.from_earliest(topic), batch_size=60) as manager:
        poll_rows(manager, 60)
        metrics = manager.metrics()
        assert manager.held_bytes() > 0
    assert (metrics.rows_received, metrics.rows_released, metrics.rows_held) == (
        100,
        60,
        40,
    )
    assert metrics.fetches >= 1
    assert metrics.bytes_received > 100
    assert metrics.fetches_failed == 0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": "7"}, "batch_size"),
        ({"cutoff_ms": -1}, "cutoff_ms"),
        ({"max_held_messages": 0}, "max_held_messages"),
        ({"max_held_bytes": None}, "max_held_bytes"),
        ({"out_of_order_ms": -5}, "out_of_order_ms"),
        ({"max_idle_ms": 0}, "max_idle_ms"),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused_by_name(
    options: dict[str, Any], word: str
) -> None:
    with pytest.raises(BadConfig, match=word):
        ConsumerManager({"bootstrap.servers": "127.0.0.1:1"}, [SourceTopic("t")], **options)


def test_a_consumer_that_is_forgotten_leaves_no_thread(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    feed(bootstrap, topic, even(1, 10))
    before = set(threading.enumerate())
    manager = ConsumerManager({"bootstrap.servers": bootstrap}, [SourceTopic.from_earliest(topic)])
    assert prime(manager).num_rows == 10
    ours = {thread.name for thread in set(threading.enumerate()) - before}
    assert ours >= {"lakelog-consumer", "lakelog-decode"}
    del manager
    gc.collect()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not left & {"lakelog-consumer", "lakelog-decode"}


def test_a_program_that_forgets_to_close_ends(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    feed(bootstrap, topic, even(1, 10))
    program = f"""
from lakelog.client import ConsumerManager, SourceTopic
config = {{"bootstrap.servers": {bootstrap!r}}}
manager = ConsumerManager(config, [SourceTopic.from_earliest({topic!r})])
print(manager.poll(10_000).num_rows)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "10\n", "")


def test_importing_the_library_loads_neither_arrow_nor_compilers() -> None:
    program = """
import sys
from lakelog.client import SourceTopic
print(sorted({"pyarrow", "rich", "uvloop"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def test_a_bug_is_told_and_does_not_hang(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    with reading(bootstrap, SourceTopic.from_latest(topic)) as manager:
        manager._core.thread.call(lambda: 1 / 0)
        with pytest.raises(ClientFailure, match="broken: ZeroDivisionError"):
            manager.poll(10_000)
