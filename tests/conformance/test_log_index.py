"""The index as the pipeline asks for it: the same answers in process and over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.index.index_stage import filled, made, opened, swap_of, swapped
from tests.memory_cluster import MemoryCluster

from lakelog.broker.call import Broker
from lakelog.index.entries import StreamIndex
from lakelog.index.ports import LogIndex, StreamRange
from lakelog.model.failures import Refused
from lakelog.streams.objects import FileKind, FileName, WalName, digest
from lakelog.wal.layout import wal_id_time_ms

KINDS = ("broker", "remote")
GONE = 9_999_999

Scenario = Callable[[Broker, LogIndex], Awaitable[None]]


def run(kind: str, scenario: Scenario, *, domains: int = 1) -> None:
    async def bounded() -> None:
        async with (
            asyncio.timeout(60),
            opened(kind, MemoryCluster(), domains=domains) as (broker, index),
        ):
            await scenario(broker, index)

    asyncio.run(bounded())


def rows(index: StreamIndex) -> list[tuple[int, int, int, int]]:
    found = index.columns
    lists = (found.starts, found.ends, found.kinds, found.byte_lengths)
    return list(zip(*(one.tolist() for one in lists), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_topics_are_seen_with_all_that_the_pipeline_needs_of_them(kind: str) -> None:
    async def scenario(broker: Broker, index: LogIndex) -> None:
        plain = await made(broker, "a", 3)
        await made(
            broker,
            "b",
            lakelog_format="kfs",
            lakelog_table_freshness_ms="5",
            lakelog_table_retention_ms="6",
            cleanup_policy="compact,delete",
            delete_retention_ms="7",
            min_compaction_lag_ms="8",
            max_compaction_lag_ms="9",
            min_cleanable_dirty_ratio="0.25",
            max_message_bytes="10",
        )
        first, second = await index.topics()
        assert (first.name, first.topic_id, first.streams) == ("a", plain.id, (1, 2, 3))
        assert (first.has_table, first.freshness_ms, first.table_retention_ms) == (True, 60_000, -1)
        assert not first.is_compacted
        assert (second.has_table, second.freshness_ms, second.table_retention_ms) == (False, 5, 6)
        assert (second.is_compacted, second.delete_retention_ms) == (True, 7)
        assert (second.min_compaction_lag_ms, second.max_compaction_lag_ms) == (8, 9)
        assert (second.dirty_ratio_min, second.message_bytes_max) == (0.25, 10)
        assert await index.cluster_id() == broker.cluster.cluster_id

    run(kind, scenario)


@pytest.mark.parametrize("domains", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_the_entries_of_the_log_whatever_domain_they_are_in(
    kind: str, domains: int
) -> None:
    async def scenario(broker: Broker, index: LogIndex) -> None:
        streams = (await made(broker, "t", 5)).streams()
        await filled(broker, streams[:4], objects=3)
        found = await index.columns([*streams, GONE])
        assert sorted(found) == streams
        for stream in streams:
            pieces = broker.log.pieces(stream)
            expected = [(one.start, one.end, 0, one.byte_length) for one in pieces]
            assert rows(found[stream]) == expected
            assert len(expected) == (3 if stream != streams[4] else 0)
            times = [
                wal_id_time_ms(one.name.wal_id) for one in pieces if isinstance(one.name, WalName)
            ]
            assert found[stream].columns.object_times_ms.tolist() == times
            assert (found[stream].log_start, found[stream].head) == (0, 2 * len(expected))

    run(kind, scenario, domains=domains)


@pytest.mark.parametrize("kind", KINDS)
def test_the_backlog_begins_at_the_last_entry_that_is_compacted(kind: str) -> None:
    async def scenario(broker: Broker, index: LogIndex) -> None:
        streams = (await made(broker, "t", 4)).streams()
        fresh, half, done, empty = streams
        await filled(broker, [fresh, half, done], objects=4)
        await swapped(index, half, start=0, end=2, key="compaction/v1/a")
        await swapped(index, half, start=2, end=4, key="compaction/v1/b")
        await swapped(index, done, start=0, end=8, key="compaction/v1/c")
        found = await index.backlog([*streams, GONE])
        assert sorted(found) == [fresh, half]
        assert found[fresh].columns.kinds.tolist() == [0, 0, 0, 0]
        assert found[half].columns.starts.tolist() == [2, 4, 6]
        assert found[half].columns.kinds.tolist() == [int(FileKind.PARQUET), 0, 0]
        assert found[half].head == 8
        everything = await index.columns([half, empty])
        assert everything[half].columns.starts.tolist() == [0, 2, 4, 6]
        assert rows(everything[empty]) == []
        named = {"compaction/v1/a", "compaction/v1/b", "compaction/v1/c"}
        assert await index.named_files() == named

    run(kind, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_holds_every_entry_with_an_offset_of_its_range(kind: str) -> None:
    async def scenario(broker: Broker, index: LogIndex) -> None:
        streams = (await made(broker, "t", 2)).streams()
        stream, empty = streams
        await filled(broker, [stream], objects=4)
        await swapped(index, stream, start=2, end=6, key="compaction/v1/a")
        ranges = [
            StreamRange(stream, 0, 8),
            StreamRange(GONE, 0, 8),
            StreamRange(stream, 3, 7),
            StreamRange(stream, 8, 9),
            StreamRange(empty, 0, 1),
            StreamRange(stream, 0, 1),
        ]
        whole, gone, middle, beyond, nothing, first = await index.views(ranges)
        assert whole is not None
        assert gone is None
        assert [(one.start, one.end) for one in whole.entries] == [(0, 2), (2, 6), (6, 8)]
        for entry, piece in zip(whole.entries, broker.log.pieces(stream), strict=True):
            assert entry.name == piece.name
            assert (entry.byte_start, entry.byte_length) == (piece.byte_start, piece.byte_length)
            assert entry.max_timestamp_ms == piece.max_timestamp_ms
        assert whole.entries[1].name == FileName(FileKind.PARQUET, "compaction/v1/a")
        assert middle is not None
        assert middle.entries == whole.entries[1:]
        assert (middle.stream, middle.log_start, middle.first_start) == (stream, 0, 0)
        assert beyond is not None
        assert beyond.entries == ()
        assert nothing is not None
        assert (nothing.entries, nothing.first_start) == ((), 0)
        assert first is not None
        assert first.entries == whole.entries[:1]

    run(kind, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_trimmed_is_told_from_what_was_swapped(kind: str) -> None:
    async def scenario(broker: Broker, index: LogIndex) -> None:
        (stream,) = (await made(broker, "t")).streams()
        await filled(broker, [stream], objects=3)
        (before,) = await index.views([StreamRange(stream, 0, 4)])
        assert before is not None
        await broker.log.trim({stream: 3})
        (view,) = await index.views([StreamRange(stream, 0, 4)])
        assert view is not None
        assert (view.log_start, view.first_start) == (3, 2)
        assert [(one.start, one.end) for one in view.entries] == [(2, 4)]
        assert (await index.columns([stream]))[stream].log_start == 3
        planned = swap_of(before, start=0, end=4, key="compaction/v1/a")
        assert (await index.swap(planned)).accepted  # it covers what trimming left of its range
        await broker.log.trim({stream: 6})
        (emptied,) = await index.views([StreamRange(stream, 0, 4)])
        assert emptied is not None
        assert (emptied.log_start, emptied.first_start, emptied.entries) == (6, 6, ())
        assert await index.backlog([stream]) == {}
        outcome = await index.swap(replace(planned, file=FileName(FileKind.PARQUET, "b")))
        assert not outcome.accepted
        assert "does not end where an entry ends" in outcome.reason

    run(kind, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_swaps_of_the_same_range_one_is_accepted(kind: str) -> None:
    async def scenario(broker: Broker, index: LogIndex) -> None:
        (stream,) = (await made(broker, "t")).streams()
        await filled(broker, [stream], objects=3)
        (view,) = await index.views([StreamRange(stream, 0, 6)])
        assert view is not None
        swaps = [swap_of(view, start=0, end=6, key=f"compaction/v1/{n}") for n in range(8)]
        outcomes = await asyncio.gather(*(index.swap(one) for one in swaps))
        assert sum(one.accepted for one in outcomes) == 1
        winner = swaps[[one.accepted for one in outcomes].index(True)]
        assert await index.named_files() == {winner.file.key}
        refused = {one.reason for one in outcomes if not one.accepted}
        assert refused == {"the range holds objects that the file was not made of"}

    run(kind, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dropped_topic_is_gone_from_every_answer(kind: str) -> None:
    async def scenario(broker: Broker, index: LogIndex) -> None:
        topic = await made(broker, "t", 2)
        kept = await made(broker, "kept")
        streams = topic.streams()
        await filled(broker, streams, objects=1)
        (view, _) = await index.views([StreamRange(one, 0, 2) for one in streams])
        assert view is not None
        await broker.topics.delete(topic)
        assert [one.name for one in await index.topics()] == ["kept"]
        assert await index.backlog(streams) == {}
        assert list(await index.columns([*streams, *kept.streams()])) == kept.streams()
        assert await index.views([StreamRange(one, 0, 2) for one in streams]) == [None, None]
        outcome = await index.swap(swap_of(view, start=0, end=2, key="compaction/v1/a"))
        assert (outcome.accepted, outcome.reason) == (False, "the stream is gone")

    run(kind, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_swap_that_no_log_may_hold_is_refused_and_the_log_goes_on(kind: str) -> None:
    async def scenario(broker: Broker, index: LogIndex) -> None:
        (stream,) = (await made(broker, "t")).streams()
        await filled(broker, [stream], objects=1)
        (view,) = await index.views([StreamRange(stream, 0, 2)])
        assert view is not None
        good = swap_of(view, start=0, end=2, key="compaction/v1/a")
        for bad in (
            replace(good, start=2),
            replace(good, size_bytes=0),
            replace(good, file=FileName(FileKind.PARQUET, "../a")),
            replace(good, file=FileName(FileKind.PARQUET, "")),
            replace(good, file=FileName(FileKind.WAL, "a")),
            replace(good, replaces=()),
            replace(good, replaces=(b"short",)),
            replace(good, replaces=(digest(view.entries[0].name),) * 70_000),
        ):
            with pytest.raises(Refused):
                await index.swap(bad)
        assert (await index.swap(good)).accepted

    run(kind, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_acknowledged_before_the_question_is_in_the_answer(kind: str) -> None:
    async def scenario(broker: Broker, index: LogIndex) -> None:
        (stream,) = (await made(broker, "t")).streams()
        for count in range(1, 20):
            await filled(broker, [stream], objects=1)
            found = await index.backlog([stream])
            assert len(found[stream].columns.starts) == count

    run(kind, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_asked_is_nothing_answered(kind: str) -> None:
    async def scenario(broker: Broker, index: LogIndex) -> None:
        await made(broker, "t")
        assert await index.backlog([]) == {}
        assert await index.columns([]) == {}
        assert await index.views([]) == []
        assert await index.named_files() == frozenset()

    run(kind, scenario)
