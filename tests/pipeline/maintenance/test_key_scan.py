"""Log compaction against what a dictionary knows, over any life of a stream."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.maintenance.compacted_stream import RETENTION_MS, CompactedStream
from tests.profiles import examples

from lakelog.index.entries import StreamColumns
from lakelog.pipeline.files.file_task import FailureKind, FileFailure, unpack_offsets
from lakelog.pipeline.maintenance import key_scan
from lakelog.pipeline.maintenance.key_scan import scan
from lakelog.pipeline.planning.small_files import RewriteOptions, plan_rewrite
from lakelog.pipeline.saga.values import TaskTarget

_KEYS = st.sampled_from([None, b"", b"a", b"b", b"a" * 20, b"a" * 19 + b"b"])
_RECORDS = st.lists(st.tuples(_KEYS, st.sampled_from([None, b"", b"v", b"w" * 30])), max_size=6)
_ACTIONS = st.one_of(
    st.tuples(st.just("append"), _RECORDS.filter(len), st.integers(0, 2)),
    st.tuples(st.just("append"), _RECORDS.filter(len), st.integers(0, 2)),
    st.tuples(st.just("clean"), st.sampled_from([0, 1, 2, 99]), st.sampled_from([1, 1 << 20])),
    st.tuples(st.just("clean"), st.just(99), st.just(1 << 20)),
    st.tuples(st.just("wait"), st.sampled_from([1, 99, RETENTION_MS]), st.none()),
    st.tuples(st.just("merge"), st.integers(0, 5), st.integers(2, 4)),
    st.tuples(st.just("trim"), st.integers(0, 2), st.none()),
)


async def _act(stream: CompactedStream, action: tuple[str, object, object]) -> None:
    match action:
        case ("append", list(records), int(gap)):
            await stream.append(records, gap=gap)
        case ("clean", int(groups_max), int(bytes_target)):
            await stream.clean(groups_max=groups_max, bytes_target=bytes_target)
        case ("wait", int(ms), _):
            stream.now_ms += ms
        case ("merge", int(first), int(count)):
            chosen = tuple(stream.entries[first : first + count])
            if len(chosen) > 1:
                await stream.replace(chosen, TaskTarget.REWRITE)
        case ("trim", int(count), _):
            stream.trim(min(count, len(stream.entries)))
        case _:
            raise AssertionError(action)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(_ACTIONS, min_size=4, max_size=14))
def test_the_latest_record_of_each_key_stays_whatever_happens(
    actions: list[tuple[str, object, object]],
) -> None:
    async def scenario() -> None:
        stream = CompactedStream()
        for action in actions:
            await _act(stream, action)
            await stream.check()
        await _end(stream)

    asyncio.run(scenario())


async def _end(stream: CompactedStream) -> None:
    """Left alone, every stream comes to rest with one record a key and no tombstone."""
    for _ in range(4):
        await stream.clean()
        await stream.check()
        stream.now_ms += RETENTION_MS
    assert stream.plan() is None
    rows = [row for row in await stream.rows() if row.key is not None]
    assert len({row.key for row in rows}) == len(rows)
    assert all(row.value is not None for row in rows)


def test_a_tombstone_outlives_its_retention_and_no_more_under_constant_load() -> None:
    async def scenario() -> None:
        stream = CompactedStream()
        await stream.append([(b"a", b"1"), (b"a", None)], gap=0)
        seen_ms = []
        begin_ms = stream.now_ms
        for number in range(60):
            await stream.append([(b"%d" % number, b"x")], gap=0)
            await stream.clean()
            if any(row.key == b"a" for row in await stream.rows()):
                seen_ms.append(stream.now_ms - begin_ms)
            stream.now_ms += RETENTION_MS // 20
        assert RETENTION_MS - RETENTION_MS // 20 <= seen_ms[-1] <= RETENTION_MS * 18 // 16
        assert len(stream.cleaned.passes) <= 18

    asyncio.run(scenario())


def test_a_pass_that_found_nothing_to_do_is_not_made_again() -> None:
    async def scenario() -> None:
        stream = CompactedStream()
        await stream.append([(b"a", b"1"), (b"b", b"2")], gap=3)
        before = list(stream.entries)
        assert await stream.clean()
        assert stream.entries == before
        assert stream.plan() is None

    asyncio.run(scenario())


def test_a_range_that_is_all_superseded_becomes_a_file_without_rows() -> None:
    async def scenario() -> None:
        stream = CompactedStream()
        await stream.append([(b"a", b"1")], gap=2)
        await stream.append([(b"b", b"1")], gap=0)
        await stream.append([(b"a", b"2")], gap=0)
        assert await stream.clean()
        assert [one.offset for one in await stream.rows()] == [3, 4]
        assert [(one.start, one.end) for one in stream.entries] == [(0, 3), (3, 4), (4, 5)]
        assert len(stream.table) == 2
        await stream.append([(b"b", b"2")], gap=0)
        assert await stream.clean()
        assert [(one.start, one.end) for one in stream.entries] == [(0, 4), (4, 5), (5, 6)]

    asyncio.run(scenario())


def test_a_file_that_cannot_be_read_is_named_and_nothing_goes() -> None:
    async def scenario() -> None:
        stream = CompactedStream()
        await stream.append([(b"a", b"1")], gap=0)
        await stream.append([(b"a", b"2")], gap=0)
        plan = stream.plan()
        assert plan is not None
        bad = plan.pieces[1]
        data = bytearray(await stream.objects.get(bad.key))
        data[10] ^= 1
        await stream.objects.put(bad.key, [data])
        answer = await scan(stream.objects, plan)
        assert isinstance(answer, FileFailure)
        assert (answer.trouble, answer.object_key) == (FailureKind.CORRUPT, bad.key)
        assert (answer.start, answer.end) == (1, 2)
        await stream.objects.delete([bad.key])
        answer = await scan(stream.objects, plan)
        assert isinstance(answer, FileFailure)
        assert answer.trouble is FailureKind.MISSING

    asyncio.run(scenario())


def test_keys_are_brought_together_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        stream = CompactedStream()
        for number in range(30):
            await stream.append([(b"%d" % (number % 7), b"x"), (None, b"y")], gap=0)
        plan = stream.plan()
        assert plan is not None
        whole = await scan(stream.objects, plan)
        monkeypatch.setattr(key_scan, "MERGE_ROWS", 3)
        assert await scan(stream.objects, plan) == whole

    asyncio.run(scenario())


def test_files_that_became_small_are_merged_by_the_next_rewrite() -> None:
    async def scenario() -> None:
        stream = CompactedStream()
        for number in range(10):
            await stream.append([(b"a", b"%d" % number), (b"%d" % number, b"x")], gap=0)
        assert await stream.clean(bytes_target=1)
        window = plan_rewrite(columns_of(stream), options=RewriteOptions(bytes_target=1 << 20))
        assert window is not None
        assert (window.start, window.end, window.entry_count) == (0, 20, 10)
        await stream.replace(tuple(stream.entries), TaskTarget.REWRITE)
        await stream.check()

    asyncio.run(scenario())


def columns_of(stream: CompactedStream) -> StreamColumns:
    entries = stream.entries
    return StreamColumns(
        starts=np.array([one.start for one in entries], np.int64),
        ends=np.array([one.end for one in entries], np.int64),
        kinds=np.array([one.kind for one in entries], np.int64),
        byte_lengths=np.array([one.byte_length for one in entries], np.int64),
        object_times_ms=np.zeros(len(entries), np.int64),
    )


def test_values_are_looked_at_only_where_a_tombstone_may_go() -> None:
    async def scenario() -> None:
        stream = CompactedStream()
        await stream.append([(b"a", None)], gap=0)
        await stream.append([(b"b", None)], gap=0)
        plan = stream.plan()
        assert plan is not None
        first, second = plan.pieces
        due = replace(plan, tombstones_end=1)
        assert not key_scan.needs_values(plan, first)
        assert key_scan.needs_values(due, first)
        assert not key_scan.needs_values(due, second)
        assert not key_scan.needs_values(replace(due, tombstones_gone=1), first)

    asyncio.run(scenario())


def test_a_tombstone_stays_beside_one_that_goes() -> None:
    async def scenario() -> None:
        stream = CompactedStream()
        await stream.append([(b"a", None), (None, None)], gap=0)
        await stream.append([(b"b", None)], gap=0)
        await stream.replace(tuple(stream.entries), TaskTarget.REWRITE)
        plan = stream.plan()
        assert plan is not None
        answer = await scan(stream.objects, replace(plan, tombstones_end=2))
        assert not isinstance(answer, FileFailure)
        (found,) = answer
        assert found.row_count == 3
        assert unpack_offsets(found.kept_offsets).tolist() == [1, 2]

    asyncio.run(scenario())
