"""Files become one file with the same rows, or an answer that says what is in the way."""

import asyncio
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.tables import table_facts
from tests.pipeline.files.table_files import (
    Batches,
    consumed,
    one_by_one,
    outside_of_the_table,
    put_file,
    rewriting,
    table_of,
)
from tests.profiles import examples
from tests.records.table_cases import hostile_batches, rows_of, stored_batches

from lakelog.clock import SystemClock
from lakelog.model.failures import Failure, OutcomeUnknown, Unavailable
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import Buffer
from lakelog.pipeline.files import inputs
from lakelog.pipeline.files.file_task import (
    FailureKind,
    FileFailure,
    FileResult,
    FileTask,
    TableInputs,
    TablePiece,
    pack_offsets,
)
from lakelog.pipeline.files.run_task import run_task
from lakelog.records.build import Record
from lakelog.records.header import parse_header
from lakelog.records.table_schema import FIELD_IDS
from lakelog.streams.table import Int64s


def end_of(batches: Batches) -> int:
    base_offset, batch = batches[-1]
    return base_offset + parse_header(batch).last_offset_delta + 1


async def halves(objects: MemoryObjectStore, batches: Batches) -> list[TablePiece]:
    """Two files of these batches, in row groups of about a batch."""
    middle = batches[len(batches) // 2][0]
    low, high = batches[: len(batches) // 2], batches[len(batches) // 2 :]
    start = batches[0][0]
    return [
        await put_file(objects, low, start=start, end=middle, row_group_bytes=9000),
        await put_file(objects, high, start=middle, end=end_of(batches), row_group_bytes=9000),
    ]


async def done(objects: MemoryObjectStore, task: FileTask) -> FileResult:
    answer = await run_task(objects, task)
    assert isinstance(answer, FileResult), answer
    return answer


async def failure_of(objects: MemoryObjectStore, task: FileTask) -> FileFailure:
    before = {info.key async for info in objects.list("")}
    answer = await run_task(objects, task)
    assert isinstance(answer, FileFailure), answer
    assert (answer.task_id, answer.attempt) == (task.task_id, task.attempt)
    assert {info.key async for info in objects.list("")} == before
    return answer


def keeping(task: FileTask, offsets: Int64s) -> FileTask:
    assert isinstance(task.inputs, TableInputs)
    return replace(task, inputs=replace(task.inputs, kept_offsets=pack_offsets(offsets)))


def output_of(task: FileTask, result: FileResult) -> TablePiece:
    return TablePiece(task.key, result.facts.size_bytes, task.start, task.end, True)


def numbered(*offsets: int) -> Batches:
    return one_by_one([(at, Record(b"k%d" % at, b"v%d" % at, 1000 + at)) for at in offsets])


def test_hostile_rows_are_the_same_after_a_rewrite() -> None:
    async def scenario() -> None:
        objects = MemoryObjectStore(SystemClock())
        batches = hostile_batches()
        pieces = await halves(objects, batches)
        task = rewriting(pieces)
        result = await done(objects, task)
        before = pa.concat_tables([await table_of(objects, piece.key) for piece in pieces])
        after = await table_of(objects, task.key)
        assert after.equals(before)
        assert await consumed(objects, output_of(task, result)) == rows_of(batches)
        assert result.read_bytes == sum(piece.size_bytes for piece in pieces)

    asyncio.run(scenario())


def test_the_new_file_says_where_its_rows_come_from() -> None:
    async def scenario() -> None:
        objects = MemoryObjectStore(SystemClock())
        pieces = [
            await put_file(objects, numbered(4, 5), start=4, end=6),
            await put_file(objects, numbered(6, 9), start=6, end=10),
        ]
        task = replace(rewriting(pieces), batch_bytes_max=77)
        facts = table_facts(await done(objects, task))
        origin = facts.origin
        assert (origin.stream, origin.partition, origin.task) == (7, 3, "7-2")
        assert (origin.start, origin.end, origin.batch_bytes_max) == (4, 10, 77)
        assert (facts.row_count, facts.min_timestamp_ms, facts.max_timestamp_ms) == (4, 1004, 1009)
        assert facts.size_bytes == len(await objects.get(task.key))
        (offsets,) = [one for one in facts.columns if one.path == "offset"]
        assert (offsets.lower, offsets.upper) == (4, 9)

    asyncio.run(scenario())


def test_one_file_alone_comes_out_byte_by_byte() -> None:
    async def scenario() -> None:
        objects = MemoryObjectStore(SystemClock())
        piece = await put_file(objects, numbered(*range(50)), start=0, end=50, row_group_bytes=300)
        task = replace(rewriting([piece]), task_id="7-1", batch_bytes_max=1 << 20)
        await done(objects, replace(task, row_group_bytes=300))
        assert bytes(await objects.get(task.key)) == bytes(await objects.get(piece.key))

    asyncio.run(scenario())


@settings(max_examples=examples(40), deadline=None)
@given(stored_batches().filter(len), st.data())
def test_any_rows_survive_and_only_those_that_are_kept(
    batches: list[tuple[int, memoryview]], data: st.DataObject
) -> None:
    async def scenario() -> None:
        objects = MemoryObjectStore(SystemClock())
        pieces = []
        for place, one in enumerate(batches):
            end = batches[place + 1][0] if place + 1 < len(batches) else end_of(batches)
            piece = await put_file(objects, [one], start=one[0], end=end)
            pieces.append(replace(piece, in_table=bool(rows_of([one]))))
        expected = rows_of(batches)
        task = rewriting(pieces)
        if data.draw(st.booleans()):
            kept = {row.offset for row in expected if data.draw(st.booleans())}
            offsets = np.array(sorted(kept), np.int64)
            expected = [row for row in expected if row.offset in kept]
            task = keeping(task, offsets)
        result = await done(objects, task)
        assert await consumed(objects, output_of(task, result)) == expected
        assert table_facts(result).row_count == len(expected)

    asyncio.run(scenario())


def test_a_range_that_loses_all_rows_becomes_a_file_without_rows() -> None:
    async def scenario() -> None:
        objects = MemoryObjectStore(SystemClock())
        piece = await put_file(objects, numbered(0, 1), start=0, end=4)
        task = keeping(rewriting([piece]), np.zeros(0, np.int64))
        facts = table_facts(await done(objects, task))
        assert (facts.row_count, facts.max_timestamp_ms, facts.row_groups) == (0, -1, ())
        again = TablePiece(task.key, facts.size_bytes, 0, 4, False)
        more = await put_file(objects, numbered(4), start=4, end=6)
        merged = replace(rewriting([again, more]), key="compaction/x.parquet")
        assert table_facts(await done(objects, merged)).row_count == 1

    asyncio.run(scenario())


def test_rows_before_the_first_entry_stay() -> None:
    async def scenario() -> None:
        objects = MemoryObjectStore(SystemClock())
        piece = replace(await put_file(objects, numbered(0, 1, 2, 3), start=0, end=4), start=2)
        await done(objects, rewriting([piece], start=0))
        table = await table_of(objects, rewriting([piece]).key)
        assert table["offset"].to_pylist() == [0, 1, 2, 3]
        lost = await failure_of(MemoryObjectStore(SystemClock()), rewriting([piece], start=0))
        assert lost.trouble is FailureKind.MISSING
        short = replace(rewriting([piece], start=1), key="compaction/y.parquet")
        assert (await failure_of(objects, short)).trouble is FailureKind.CORRUPT

    asyncio.run(scenario())


@pytest.mark.parametrize("small", [1 << 20, 0], ids=["read whole", "read in parts"])
def test_damage_anywhere_is_found_and_named(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "SMALL_BYTES", small)
    monkeypatch.setattr(inputs, "FOOTER_BYTES", 64)

    async def scenario() -> None:
        objects = MemoryObjectStore(SystemClock())
        first = await put_file(objects, numbered(*range(40)), start=0, end=40)
        second = await put_file(objects, numbered(*range(40, 80)), start=40, end=80)
        task = rewriting([first, second])
        await done(objects, task)
        await objects.delete([task.key])
        whole = bytes(await objects.get(second.key))
        for place in range(4, len(whole), 97):
            damaged = bytearray(whole)
            damaged[place] ^= 0x40
            await objects.put(second.key, [damaged])
            answer = await run_task(objects, task)
            if isinstance(answer, FileResult):  # a byte of the page index, which nobody reads
                assert (await table_of(objects, task.key)).num_rows == 80
                await objects.delete([task.key])
                continue
            assert (answer.trouble, answer.object_key) == (FailureKind.CORRUPT, second.key)
            assert (answer.start, answer.end) == (40, 80)
        await objects.put(second.key, [whole[:-1]])
        assert (await failure_of(objects, task)).trouble is FailureKind.CORRUPT
        await objects.delete([second.key])
        gone = await failure_of(objects, task)
        assert (gone.trouble, gone.object_key) == (FailureKind.MISSING, second.key)

    asyncio.run(scenario())


def test_a_file_that_is_not_what_the_index_says_is_refused() -> None:
    async def scenario() -> None:
        objects = MemoryObjectStore(SystemClock())
        piece = await put_file(objects, numbered(0, 1), start=0, end=2)
        task = rewriting([piece])
        wrong: Sequence[FileTask] = (
            replace(task, stream=8),
            replace(task, partition=4),
            replace(task, topic_id=bytes(16)),
            rewriting([replace(piece, end=3)]),
            rewriting([outside_of_the_table(piece)]),
            keeping(task, np.array([0, 5], np.int64)),
        )
        for one in wrong:
            assert (await failure_of(objects, one)).trouble is FailureKind.CORRUPT

    asyncio.run(scenario())


class Failing(MemoryObjectStore):
    """A store that fails with this at puts or reads."""

    def __init__(self, put: Failure | None = None, get: Failure | None = None) -> None:
        super().__init__(SystemClock())
        self.put_failure, self.get_failure = put, get

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if self.put_failure is not None and key.endswith("-a.parquet"):
            raise self.put_failure
        await super().put(key, parts)

    async def get_ranges(self, key: str, ranges: Sequence[object]) -> list[memoryview]:
        if self.get_failure is not None:
            raise self.get_failure
        return await super().get_ranges(key, ranges)  # type: ignore[arg-type]  # passed on


@pytest.mark.parametrize(
    "objects",
    [
        Failing(put=OutcomeUnknown("no reply")),
        Failing(put=Unavailable("503")),
        Failing(get=Unavailable("503")),
    ],
    ids=["unknown put", "refused put", "refused read"],
)
def test_a_store_that_fails_is_tried_again_later(objects: Failing) -> None:
    async def scenario() -> None:
        piece = await put_file(objects, numbered(0, 1), start=0, end=2)
        assert (await failure_of(objects, rewriting([piece]))).trouble is FailureKind.UNAVAILABLE

    asyncio.run(scenario())


def test_a_directory_that_is_not_there_is_an_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        objects = MemoryObjectStore(SystemClock())
        piece = await put_file(objects, numbered(0), start=0, end=1)
        answer = await run_task(objects, rewriting([piece]), directory=str(tmp_path / "no"))
        assert isinstance(answer, FileFailure)
        assert answer.trouble is FailureKind.UNAVAILABLE

    asyncio.run(scenario())


def test_a_pool_makes_the_same_file_and_values_travel(tmp_path: Path) -> None:
    async def scenario() -> None:
        objects = MemoryObjectStore(SystemClock())
        batches = numbered(*range(400))
        pieces = [
            await put_file(
                objects, batches[at : at + 20], start=at, end=at + 20, row_group_bytes=500
            )
            for at in range(0, 400, 20)
        ]
        task = pickle.loads(pickle.dumps(rewriting(pieces)))
        alone = await done(objects, task)
        expected = bytes(await objects.get(task.key))
        with ThreadPoolExecutor(1) as pool:
            answer = await run_task(objects, task, pool=pool, directory=str(tmp_path))
        assert pickle.loads(pickle.dumps(answer)) == alone
        assert bytes(await objects.get(task.key)) == expected

    asyncio.run(scenario())


def test_the_ids_of_the_table_are_written() -> None:
    async def scenario() -> None:
        objects = MemoryObjectStore(SystemClock())
        piece = await put_file(objects, numbered(0), start=0, end=1)
        ids = tuple((path, number + 100) for path, number in FIELD_IDS.items())
        task = replace(rewriting([piece]), field_ids=ids)
        facts = table_facts(await done(objects, task))
        assert {(one.path, one.field_id) for one in facts.columns} <= set(ids)
        schema = pq.read_schema(pa.BufferReader(await objects.get(task.key)))
        assert schema.field("offset").metadata[b"PARQUET:field_id"] == b"102"

    asyncio.run(scenario())
