"""A task over WAL objects becomes a data file or a segment, or an answer that says why not."""

import asyncio
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.log.segments import fill_hostile, read_bytes
from tests.log.tables import accepted, read_all, table_facts, task_of, wal_inputs, wal_task
from tests.memory_cluster import TOPIC, MemoryCluster, MemoryNode, batch, run

from lakelog.model.failures import Failure, OutcomeUnknown, Unavailable
from lakelog.model.ids import ByteRange, DomainId, WalId
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import Buffer
from lakelog.pipeline.files import build_file, inputs
from lakelog.pipeline.files.file_task import FailureKind, FileFailure, FileResult, FileTask
from lakelog.pipeline.files.run_task import run_task
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.header import CRC_OFFSET, batch_crc
from lakelog.records.segment_file import SegmentFacts, decode
from lakelog.records.table_schema import FIELD_IDS
from lakelog.streams.objects import FileKind
from lakelog.wal.layout import object_key

OUTPUTS = pytest.mark.parametrize("output", [FileKind.PARQUET, FileKind.SEGMENT])


async def filled(cluster: MemoryCluster, *streams: int, batches: int = 4) -> MemoryNode:
    """Streams whose batches lie in objects that they share."""
    node = await cluster.node()
    await node.log.create_streams(TOPIC, first_partition=0, streams=list(streams))
    for number in range(batches):
        sent = batch(b"%d" % number, b"x" * 40, timestamp_ms=1000 + number)
        for half in (0, 1):
            twice = [sent] * len(streams) if half else [sent] * len(streams) * 2
            named = list(streams) * (1 if half else 2)
            await node.log.append(named, twice, deadline_s=cluster.soon())
    return node


async def table_of(cluster: MemoryCluster, result: FileResult) -> pa.Table:
    return pq.read_table(pa.BufferReader(await cluster.objects.get(result.key)))


def key_of(task: FileTask, number: int) -> str:
    piece = wal_inputs(task).pieces[number]
    return object_key(piece.zone, DomainId(wal_inputs(task).domain), WalId(piece.wal_id))


async def failure_of(cluster: MemoryCluster, task: FileTask) -> FileFailure:
    before = {info.key async for info in cluster.objects.list("")}
    answer = await run_task(cluster.objects, task)
    assert isinstance(answer, FileFailure), answer
    assert (answer.task_id, answer.attempt) == (task.task_id, task.attempt)
    assert {info.key async for info in cluster.objects.list("")} == before
    return answer


def test_the_file_holds_exactly_the_records_of_the_range() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, 1, 2)
        rows = await read_all(cluster, node, 1)
        task = task_of(node, 1)
        pieces = wal_inputs(task).pieces
        assert len(pieces) > 3
        result = await run_task(cluster.objects, task)
        assert isinstance(result, FileResult)
        table = await table_of(cluster, result)
        assert table["offset"].to_pylist() == [row.offset for row in rows]
        assert table["value"].to_pylist() == [row.value for row in rows]
        assert set(table["partition"].to_pylist()) == {0}
        facts = table_facts(result)
        stamps = [row.timestamp_ms for row in rows]
        assert (facts.row_count, facts.min_timestamp_ms, facts.max_timestamp_ms) == (
            len(rows),
            min(stamps),
            max(stamps),
        )
        assert facts.size_bytes == len(await cluster.objects.get(result.key))
        assert result.read_bytes == sum(piece.byte_length for piece in pieces)
        assert (facts.origin.start, facts.origin.end) == (task.start, task.end)

    run(scenario)


def test_a_range_within_the_pieces_leaves_out_what_is_not_asked_for() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, 1)
        task = replace(task_of(node, 1), start=3, end=15)
        result = await run_task(cluster.objects, task)
        assert isinstance(result, FileResult)
        assert (await table_of(cluster, result))["offset"].to_pylist() == list(range(3, 15))

    run(scenario)


@pytest.mark.parametrize("log_start", [0, 1, 2, 7, 15])
def test_records_below_the_log_start_become_no_rows_of_a_file_that_stands_for_them(
    log_start: int,
) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, 1)
        task = replace(task_of(node, 1), log_start=log_start)
        result = await run_task(cluster.objects, task)
        assert isinstance(result, FileResult)
        rows = (await table_of(cluster, result))["offset"].to_pylist()
        assert rows == list(range(log_start, task.end))
        origin = table_facts(result).origin
        assert (origin.start, origin.end) == (task.start, task.end)

    run(scenario)


def test_the_tables_own_ids_are_in_the_file() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, 1)
        ids = {path: number + 100 for path, number in FIELD_IDS.items()}
        task = replace(task_of(node, 1), field_ids=tuple(ids.items()))
        result = await run_task(cluster.objects, task)
        assert isinstance(result, FileResult)
        schema = (await table_of(cluster, result)).schema
        assert schema.field("raw").metadata[b"PARQUET:field_id"] == b"112"

    run(scenario)


def test_a_batch_that_cannot_be_decoded_is_named_by_its_offsets() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node()
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        good = accepted(memoryview(build_batch([Record(None, b"a", 5)] * 3, BatchOptions())))
        broken = bytearray(good.data)
        broken[61] = 0x7F  # the first record's length; the CRC is right again
        broken[CRC_OFFSET : CRC_OFFSET + 4] = batch_crc(memoryview(broken)).to_bytes(4, "big")
        bad = msgspec.structs.replace(good, data=memoryview(bytes(broken)))
        await node.log.append([1, 1, 1], [good, bad, good], deadline_s=cluster.soon())
        task = task_of(node, 1)
        answer = await failure_of(cluster, task)
        assert (answer.trouble, answer.start, answer.end) == (FailureKind.UNREADABLE, 3, 6)
        assert answer.object_key == key_of(task, 0)

    run(scenario)


def test_the_segment_holds_exactly_the_batches_that_a_consumer_reads() -> None:
    """Hostile ones and ones that cannot be read among them."""

    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node()
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        await fill_hostile(cluster, node, 1)
        served = await read_bytes(cluster, node, 1)
        task = wal_task(node, 1, FileKind.SEGMENT)
        result = await run_task(cluster.objects, task)
        assert isinstance(result, FileResult)
        content = await cluster.objects.get(result.key)
        segment, batches = decode(content)
        assert [bytes(one) for one in batches] == served
        facts = result.facts
        assert isinstance(facts, SegmentFacts)
        bounds = task.start, task.end
        assert (segment.start, segment.end, segment.created_ms) == (*bounds, task.created_ms)
        assert (facts.start, facts.end, facts.batch_count) == (*bounds, len(served))
        assert facts.size_bytes == len(content)
        assert facts.max_timestamp_ms == max(one.max_timestamp_ms for one in node.log.pieces(1))
        pieces = wal_inputs(task).pieces
        assert result.read_bytes == sum(piece.byte_length for piece in pieces)

    run(scenario)


def test_a_batch_that_the_range_begins_in_is_kept_whole_in_a_segment() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, 1)
        task = replace(wal_task(node, 1, FileKind.SEGMENT), start=3)
        result = await run_task(cluster.objects, task)
        assert isinstance(result, FileResult)
        assert isinstance(result.facts, SegmentFacts)
        assert (result.facts.start, result.facts.end) == (2, task.end)

    run(scenario)


@OUTPUTS
def test_tasks_and_answers_travel(output: FileKind) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, 1)
        task = pickle.loads(pickle.dumps(wal_task(node, 1, output)))
        result = await run_task(cluster.objects, task)
        assert isinstance(result, FileResult)
        assert pickle.loads(pickle.dumps(result)) == result
        elsewhere = replace(task, inputs=replace(task.inputs, domain=7))
        failure = await failure_of(cluster, elsewhere)
        assert pickle.loads(pickle.dumps(failure)) == failure

    run(scenario)


@OUTPUTS
def test_a_pool_small_slices_and_small_rows_make_the_same_file(
    output: FileKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, 1, batches=10)
        task = wal_task(node, 1, output, row_group_bytes=300, index_interval_bytes=300)
        whole = await run_task(cluster.objects, task)
        expected = bytes(await cluster.objects.get(task.key))
        monkeypatch.setattr(inputs, "READ_BYTES", 300)
        monkeypatch.setattr(build_file, "ROWS_BYTES", 100)
        with ThreadPoolExecutor(1) as pool:
            assert await run_task(cluster.objects, task, pool=pool) == whole
        assert bytes(await cluster.objects.get(task.key)) == expected

    run(scenario)


@OUTPUTS
def test_a_missing_or_damaged_object_is_named_and_so_are_its_offsets(output: FileKind) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, 1)
        task = wal_task(node, 1, output)
        key, piece = key_of(task, 1), wal_inputs(task).pieces[1]
        content = bytearray(await cluster.objects.get(key))
        content[piece.byte_start + piece.byte_length - 1] ^= 1
        await cluster.objects.put(key, [content])
        answer = await failure_of(cluster, task)
        assert (answer.trouble, answer.object_key) == (FailureKind.CORRUPT, key)
        assert (answer.start, answer.end) == (piece.start, piece.end)
        await cluster.objects.put(key, [content[:100]])
        assert (await failure_of(cluster, task)).trouble is FailureKind.CORRUPT
        await cluster.objects.delete([key])
        answer = await failure_of(cluster, task)
        assert (answer.trouble, answer.object_key) == (FailureKind.MISSING, key)
        assert answer.start <= piece.start < piece.end <= answer.end

    run(scenario)


@OUTPUTS
def test_a_damaged_object_stops_its_own_task_alone(output: FileKind) -> None:
    """Rule 6: one answer in a hundred names the object, the others are files."""

    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, *range(1, 101), batches=1)
        tasks = [wal_task(node, stream, output) for stream in range(1, 101)]
        piece = wal_inputs(tasks[41]).pieces[0]
        key = key_of(tasks[41], 0)
        content = bytearray(await cluster.objects.get(key))
        content[piece.byte_start + piece.byte_length - 1] ^= 1
        await cluster.objects.put(key, [content])
        answers = [await run_task(cluster.objects, task) for task in tasks]
        (bad,) = [answer for answer in answers if isinstance(answer, FileFailure)]
        assert (bad.task_id, bad.trouble, bad.object_key) == (
            tasks[41].task_id,
            FailureKind.CORRUPT,
            key,
        )
        assert (bad.start, bad.end) == (piece.start, piece.end)

    run(scenario)


@OUTPUTS
def test_an_object_that_holds_other_offsets_is_corrupt(output: FileKind) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, 1)
        task = wal_task(node, 1, output)
        *pieces, last = wal_inputs(task).pieces
        longer = replace(wal_inputs(task), pieces=(*pieces, replace(last, end=last.end + 1)))
        other = replace(task, inputs=longer, end=task.end + 1)
        assert (await failure_of(cluster, other)).trouble is FailureKind.CORRUPT

    run(scenario)


class Failing(MemoryObjectStore):
    """A store whose puts or reads fail."""

    def __init__(self, inner: MemoryObjectStore, *, put: Failure | None, get: Failure | None):
        super().__init__(inner._clock)
        self._objects = inner._objects
        self._put = put
        self._get = get

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if self._put is not None:
            raise self._put
        await super().put(key, parts)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        if self._get is not None:
            raise self._get
        return await super().get_ranges(key, ranges)


@OUTPUTS
def test_a_store_or_a_disk_that_fails_is_an_answer(output: FileKind) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, 1)
        task = wal_task(node, 1, output)
        inner = cluster.objects
        assert isinstance(inner, MemoryObjectStore)
        for put, get in (
            (OutcomeUnknown("no reply"), None),
            (Unavailable("503"), None),
            (None, Unavailable("503")),
        ):
            answer = await run_task(Failing(inner, put=put, get=get), task)
            assert isinstance(answer, FileFailure)
            assert answer.trouble is FailureKind.UNAVAILABLE
        nowhere = str(Path(__file__) / "nowhere")
        answer = await run_task(inner, task, directory=nowhere)
        assert isinstance(answer, FileFailure)
        assert answer.trouble is FailureKind.UNAVAILABLE

    run(scenario)


@OUTPUTS
def test_neighbours_in_one_object_are_one_read_and_the_file_is_one_put(output: FileKind) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, 1, 2)
        inner = cluster.objects
        assert isinstance(inner, MemoryObjectStore)
        reads: list[str] = []
        puts: list[str] = []

        class Counting(Failing):
            async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
                reads.append(key)
                assert len(ranges) == 1
                return await super().get_ranges(key, ranges)

            async def put(self, key: str, parts: Sequence[Buffer]) -> None:
                puts.append(key)
                await super().put(key, parts)

        task = wal_task(node, 1, output)
        await run_task(Counting(inner, put=None, get=None), task)
        pieces = wal_inputs(task).pieces
        assert sorted(reads) == sorted({key_of(task, number) for number in range(len(pieces))})
        assert puts == [task.key]

    run(scenario)


@OUTPUTS
def test_two_attempts_at_once_make_two_whole_files(output: FileKind) -> None:
    """Rule 5: each has a key of its own, and either may be named."""

    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, 1)
        task = wal_task(node, 1, output)
        other = replace(task, attempt="a2", key=task.key.replace("a1", "a2"))
        both = await asyncio.gather(
            run_task(cluster.objects, task), run_task(cluster.objects, other)
        )
        assert all(isinstance(answer, FileResult) for answer in both)
        one, two = [bytes(await cluster.objects.get(each.key)) for each in (task, other)]
        assert one == two

    run(scenario)
