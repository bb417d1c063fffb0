"""A segment task becomes a segment of the batches as they are, or an answer that says why not."""

import asyncio
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.log.segments import fill_hostile, read_bytes, segment_task
from tests.log.world import TOPIC, World, run
from tests.pipeline.files.test_to_parquet_wal import Failing, filled

from lakelog.model.failures import OutcomeUnknown, Unavailable
from lakelog.model.ranges import ByteRange
from lakelog.objects.memory import MemoryObjectStore
from lakelog.pipeline.files import inputs
from lakelog.pipeline.files.file_task import CompactionFailure, SegmentResult, SegmentTask, Trouble
from lakelog.pipeline.files.inputs import piece_key
from lakelog.pipeline.files.to_segment import compact_segment
from lakelog.records.segment_file import decode


async def failure_of(world: World, task: SegmentTask) -> CompactionFailure:
    before = {info.key async for info in world.objects.list("")}
    answer = await compact_segment(world.objects, task)
    assert isinstance(answer, CompactionFailure), answer
    assert (answer.task_id, answer.attempt) == (task.task_id, task.attempt)
    assert {info.key async for info in world.objects.list("")} == before
    return answer


def key_of(task: SegmentTask, number: int) -> str:
    return piece_key(task.domain, task.pieces[number])


def test_the_segment_holds_exactly_the_batches_that_a_consumer_reads() -> None:
    """Hostile ones and ones that cannot be read among them."""

    async def scenario(world: World) -> None:
        node = await world.node()
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        await fill_hostile(world, node, 1)
        served = await read_bytes(world, node, 1)
        task = segment_task(node, 1)
        result = await compact_segment(world.objects, task)
        assert isinstance(result, SegmentResult)
        content = await world.objects.get(result.key)
        found, batches = decode(content)
        assert [bytes(one) for one in batches] == served
        facts = result.facts
        assert (found.start, found.end, found.created_ms) == (task.start, task.end, task.created_ms)
        assert (facts.start, facts.end, facts.batch_count) == (task.start, task.end, len(served))
        assert facts.size_bytes == len(content)
        assert facts.max_timestamp_ms == max(one.max_timestamp_ms for one in node.log.pieces(1))
        assert result.read_bytes == sum(piece.byte_length for piece in task.pieces)

    run(scenario)


def test_a_batch_that_the_range_begins_in_is_kept_whole() -> None:
    async def scenario(world: World) -> None:
        node = await filled(world, 1)
        task = replace(segment_task(node, 1), start=3)
        result = await compact_segment(world.objects, task)
        assert isinstance(result, SegmentResult)
        assert (result.facts.start, result.facts.end) == (2, task.end)

    run(scenario)


def test_tasks_and_answers_travel() -> None:
    async def scenario(world: World) -> None:
        node = await filled(world, 1)
        task = pickle.loads(pickle.dumps(segment_task(node, 1)))
        result = await compact_segment(world.objects, task)
        assert pickle.loads(pickle.dumps(result)) == result
        failure = await failure_of(world, replace(task, domain=7))
        assert pickle.loads(pickle.dumps(failure)) == failure

    run(scenario)


def test_a_pool_and_small_slices_make_the_same_file(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        node = await filled(world, 1, batches=10)
        task = segment_task(node, 1, index_interval_bytes=300)
        whole = await compact_segment(world.objects, task)
        expected = bytes(await world.objects.get(task.key))
        monkeypatch.setattr(inputs, "READ_BYTES", 300)
        with ThreadPoolExecutor(1) as pool:
            assert await compact_segment(world.objects, task, pool=pool) == whole
        assert bytes(await world.objects.get(task.key)) == expected

    run(scenario)


def test_a_missing_or_damaged_object_is_named_and_so_are_its_offsets() -> None:
    async def scenario(world: World) -> None:
        node = await filled(world, 1)
        task = segment_task(node, 1)
        key, piece = key_of(task, 1), task.pieces[1]
        content = bytearray(await world.objects.get(key))
        content[piece.byte_start + piece.byte_length - 1] ^= 1
        await world.objects.put(key, [content])
        answer = await failure_of(world, task)
        assert (answer.trouble, answer.object_key) == (Trouble.CORRUPT, key)
        assert (answer.start, answer.end) == (piece.start, piece.end)
        await world.objects.put(key, [content[:100]])
        assert (await failure_of(world, task)).trouble is Trouble.CORRUPT
        await world.objects.delete([key])
        answer = await failure_of(world, task)
        assert (answer.trouble, answer.object_key) == (Trouble.MISSING, key)
        assert answer.start <= piece.start < piece.end <= answer.end

    run(scenario)


def test_an_object_that_holds_other_offsets_is_corrupt() -> None:
    async def scenario(world: World) -> None:
        node = await filled(world, 1)
        task = segment_task(node, 1)
        other = replace(task.pieces[-1], end=task.pieces[-1].end + 1)
        longer = replace(task, pieces=(*task.pieces[:-1], other), end=task.end + 1)
        assert (await failure_of(world, longer)).trouble is Trouble.CORRUPT

    run(scenario)


def test_a_store_or_a_disk_that_fails_is_an_answer() -> None:
    async def scenario(world: World) -> None:
        node = await filled(world, 1)
        task = segment_task(node, 1)
        inner = world.objects
        assert isinstance(inner, MemoryObjectStore)
        for put, get in (
            (OutcomeUnknown("no reply"), None),
            (Unavailable("503"), None),
            (None, Unavailable("503")),
        ):
            answer = await compact_segment(Failing(inner, put=put, get=get), task)
            assert isinstance(answer, CompactionFailure)
            assert answer.trouble is Trouble.UNAVAILABLE
        nowhere = str(Path(__file__) / "nowhere")
        answer = await compact_segment(inner, task, directory=nowhere)
        assert isinstance(answer, CompactionFailure)
        assert answer.trouble is Trouble.UNAVAILABLE

    run(scenario)


def test_neighbours_in_one_object_are_one_read_and_the_file_is_one_put() -> None:
    async def scenario(world: World) -> None:
        node = await filled(world, 1, 2)
        inner = world.objects
        assert isinstance(inner, MemoryObjectStore)
        read: list[str] = []
        puts: list[str] = []

        class Counting(Failing):
            async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
                read.append(key)
                assert len(ranges) == 1
                return await super().get_ranges(key, ranges)

            async def put(self, key: str, parts: Sequence[bytes | bytearray | memoryview]) -> None:
                puts.append(key)
                await super().put(key, parts)

        task = segment_task(node, 1)
        await compact_segment(Counting(inner, put=None, get=None), task)
        assert sorted(read) == sorted({key_of(task, at) for at in range(len(task.pieces))})
        assert puts == [task.key]

    run(scenario)


def test_two_attempts_at_once_make_two_whole_files() -> None:
    async def scenario(world: World) -> None:
        node = await filled(world, 1)
        task = segment_task(node, 1)
        other = replace(task, attempt="a2", key=task.key.replace("a1", "a2"))
        await asyncio.gather(*(compact_segment(world.objects, each) for each in (task, other)))
        one, two = [bytes(await world.objects.get(each.key)) for each in (task, other)]
        assert one == two

    run(scenario)
