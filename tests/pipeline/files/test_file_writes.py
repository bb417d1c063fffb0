"""Steps become tasks under keys of their lease, jobs hold whole topics, answers become facts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.pipeline.saga.task_values import CREATED, FACTS, PIECES, SEGMENT, wal_entry

from lakelog.index.entries import Entry
from lakelog.pipeline.files.file_task import (
    FailureKind,
    FileFailure,
    FileResult,
    FileTask,
    SegmentInputs,
    TableInputs,
    WalInputs,
)
from lakelog.pipeline.files.file_writes import FileWrite, fact_of, jobs_of, task_of
from lakelog.pipeline.saga.observe import LeasedTask
from lakelog.pipeline.saga.record_store import StoredRecord
from lakelog.pipeline.saga.steps import WriteFile
from lakelog.pipeline.saga.task_record import TaskRecord, is_made_for, parse_output_key
from lakelog.pipeline.saga.values import FileWritten, InputNotFound, TaskTarget, Unreadable
from lakelog.records.segment_file import SegmentFacts
from lakelog.streams.objects import FileKind, FileName


def write_of(record: TaskRecord = CREATED, *, kept: bytes | None = None) -> FileWrite:
    return FileWrite(LeasedTask(StoredRecord(record, 1)), WriteFile(record, PIECES), kept)


def made(write: FileWrite) -> FileTask:
    return task_of(write, attempt="ab", domain=3, message_bytes_max=77)


def test_a_range_for_the_table_is_asked_for_whole() -> None:
    task = made(write_of())
    assert isinstance(task.inputs, WalInputs)
    assert (task.start, task.end, task.inputs.domain, task.batch_bytes_max) == (4, 10, 3, 77)
    assert [(one.start, one.end) for one in task.inputs.pieces] == [(4, 6), (6, 8), (8, 10)]
    origin = parse_output_key(task.key)
    assert origin is not None
    assert (origin.stream, origin.epoch, origin.attempt, origin.kind) == (
        7,
        CREATED.epoch,
        "ab",
        FileKind.PARQUET,
    )


def test_a_range_for_the_log_alone_becomes_a_segment() -> None:
    task = made(write_of(SEGMENT))
    assert isinstance(task.inputs, WalInputs)
    assert task.output is FileKind.SEGMENT
    assert task.key.endswith(".kfs")
    assert task.created_ms == SEGMENT.created_ms


def file_pieces() -> tuple[Entry, ...]:
    names = [FileName(FileKind.PARQUET, key) for key in ("a", "b", "c")]
    return tuple(replace(entry, name=name) for entry, name in zip(PIECES, names, strict=True))


@pytest.mark.parametrize(("target", "kept"), [(TaskTarget.REWRITE, None), (TaskTarget.CLEAN, b"x")])
def test_files_are_replaced_by_one(target: TaskTarget, kept: bytes | None) -> None:
    record = structs.replace(CREATED, target=target, inputs=("a", "c"))
    write = FileWrite(LeasedTask(StoredRecord(record, 1)), WriteFile(record, file_pieces()), kept)
    task = made(write)
    assert isinstance(task.inputs, TableInputs)
    assert [(one.key, one.in_table) for one in task.inputs.pieces] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]
    assert task.inputs.kept_offsets == kept


def segment_pieces() -> tuple[Entry, ...]:
    names = [FileName(FileKind.SEGMENT, key) for key in ("a", "b", "c")]
    return tuple(replace(entry, name=name) for entry, name in zip(PIECES, names, strict=True))


def test_segments_become_rows_for_the_table() -> None:
    write = FileWrite(LeasedTask(StoredRecord(CREATED, 1)), WriteFile(CREATED, segment_pieces()))
    task = made(write)
    assert isinstance(task.inputs, SegmentInputs)
    assert (task.start, task.end, task.batch_bytes_max) == (4, 10, 77)
    assert [(one.key, one.size_bytes) for one in task.inputs.pieces] == [(k, 100) for k in "abc"]
    assert task.key.endswith(".parquet")
    fact = fact_of(write, FileResult("7-1", "ab", task.key, FACTS, 9, ((4, 6),)))
    assert isinstance(fact, FileWritten)
    assert is_made_for(CREATED, fact.file)
    assert fact.file.facts == FACTS


def test_what_is_written_for_a_table_gets_the_ids_of_its_columns() -> None:
    ids = (("offset", 70), ("value", 71))
    rewrite = structs.replace(CREATED, target=TaskTarget.REWRITE, inputs=("a",))
    for record, pieces in (
        (CREATED, PIECES),
        (CREATED, segment_pieces()),
        (rewrite, file_pieces()),
    ):
        write = FileWrite(LeasedTask(StoredRecord(record, 1)), WriteFile(record, pieces))
        task = task_of(write, attempt="ab", domain=3, message_bytes_max=7, field_ids=ids)
        assert (task.output, task.field_ids) == (FileKind.PARQUET, ids)


def test_a_bad_batch_close_behind_another_takes_more_along_but_of_a_file_nothing() -> None:
    record = structs.replace(CREATED, quarantine=((2, 4),))
    fact = fact_of(write_of(record), failure(FailureKind.UNREADABLE))
    assert fact == Unreadable("wal/x: bad", (5, 9))
    rewrite = structs.replace(record, target=TaskTarget.REWRITE, inputs=("a",))
    write = FileWrite(LeasedTask(StoredRecord(rewrite, 1)), WriteFile(rewrite, file_pieces()))
    assert fact_of(write, failure(FailureKind.UNREADABLE)) == Unreadable("wal/x: bad", (5, 6))


def failure(trouble: FailureKind) -> FileFailure:
    return FileFailure("7-1", "ab", trouble, "bad", "wal/x", 5, 6)


def test_answers_become_facts_that_name_the_object() -> None:
    write = write_of()
    key = made(write).key
    fact = fact_of(write, FileResult("7-1", "ab", key, FACTS, 9))
    assert isinstance(fact, FileWritten)
    assert is_made_for(CREATED, fact.file)
    assert (fact.file.row_count, fact.file.facts) == (6, FACTS)
    assert fact_of(write, failure(FailureKind.MISSING)) == InputNotFound("wal/x: bad")
    assert fact_of(write, failure(FailureKind.UNREADABLE)) == Unreadable("wal/x: bad", (5, 6))
    assert fact_of(write, failure(FailureKind.CORRUPT)) == Unreadable("wal/x: bad")
    assert fact_of(write, failure(FailureKind.UNAVAILABLE)) == "wal/x: bad"
    assert fact_of(write, replace(failure(FailureKind.UNAVAILABLE), object_key="")) == "bad"


def test_a_segment_has_no_facts_for_a_table() -> None:
    write = write_of(SEGMENT)
    facts = SegmentFacts(4, 10, 2, 6, 300, 9)
    fact = fact_of(write, FileResult("7-1", "ab", made(write).key, facts, 9))
    assert isinstance(fact, FileWritten)
    assert is_made_for(SEGMENT, fact.file)
    assert (fact.file.row_count, fact.file.size_bytes, fact.file.facts) == (6, 300, None)


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 500)), max_size=30),
    st.integers(1, 1000),
)
def test_every_write_is_in_one_job_and_no_topic_in_two(
    sizes: list[tuple[int, int]], job_bytes: int
) -> None:
    writes = []
    for stream, (topic, size) in enumerate(sizes, 1):
        record = structs.replace(CREATED, stream=stream, topic=f"t{topic}")
        piece = replace(wal_entry(4, 10), byte_length=size)
        writes.append(FileWrite(LeasedTask(StoredRecord(record, 1)), WriteFile(record, (piece,))))
    jobs = jobs_of(writes, job_bytes=job_bytes)
    placed = [write.leased.stream for job in jobs for write in job.writes]
    assert sorted(placed) == list(range(1, len(sizes) + 1))
    topics = [topic for job in jobs for topic in job.topics]
    assert len(topics) == len(set(topics))
    for job in jobs:
        total = sum(write.input_bytes for write in job.writes)
        assert total <= job_bytes or len(job.topics) == 1
