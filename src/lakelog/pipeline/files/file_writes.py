"""From a step that asks for a file to an engine's task, and from its answer to a fact. Pure.

A job is what the engine is asked for at once. A topic with much to read is a job of its own, small
ones share jobs, and no topic is in two: its files are there together and go into one commit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lakelog.index.entries import Entry
from lakelog.pipeline.files.file_task import (
    MESSAGE_BYTES_MAX,
    Answer,
    CompactionFailure,
    CompactionResult,
    CompactionTask,
    RewriteTask,
    RowsResult,
    RowsTask,
    SegmentPiece,
    SegmentResult,
    SegmentTask,
    TablePiece,
    Task,
    Trouble,
    WalPiece,
)
from lakelog.pipeline.planning.wal_ranges import widened
from lakelog.pipeline.saga.file_keys import output_key
from lakelog.pipeline.saga.observe import LeasedTask
from lakelog.pipeline.saga.steps import WriteFile
from lakelog.pipeline.saga.values import (
    DataFile,
    Fact,
    FileWritten,
    InputsGone,
    TaskTarget,
    Unreadable,
)
from lakelog.records.segment_file import SegmentFacts
from lakelog.streams.objects import FileKind, FileName, WalName

ATTEMPT_BYTES: Final = 8
"""The chance that makes an attempt's key its own."""


@dataclass(frozen=True, slots=True)
class FileWrite:
    """A held task that waits for its file."""

    leased: LeasedTask
    step: WriteFile
    kept_offsets: bytes | None = None
    """The offsets of the rows that log compaction keeps, where the task is one of it."""

    @property
    def input_bytes(self) -> int:
        """What has to be read for it."""
        return sum(one.byte_length for one in self.step.pieces)


@dataclass(frozen=True, slots=True)
class EngineJob:
    """What the engine is asked for at once: the writes of each of these topics."""

    topics: Mapping[str, tuple[FileWrite, ...]]

    @property
    def writes(self) -> tuple[FileWrite, ...]:
        """All of them, in order."""
        return tuple(write for writes in self.topics.values() for write in writes)


def jobs_of(writes: Iterable[FileWrite], *, job_bytes: int) -> tuple[EngineJob, ...]:
    """The jobs of a round, large topics first; a small topic's wait is one small job."""
    by_topic: dict[str, list[FileWrite]] = {}
    for write in writes:
        by_topic.setdefault(write.leased.record.topic, []).append(write)
    sizes = {topic: sum(one.input_bytes for one in some) for topic, some in by_topic.items()}
    jobs: list[dict[str, tuple[FileWrite, ...]]] = []
    room_bytes = 0
    for topic in sorted(by_topic, key=lambda topic: (-sizes[topic], topic)):
        if not jobs or sizes[topic] > room_bytes:
            jobs.append({})
            room_bytes = job_bytes
        jobs[-1][topic] = tuple(by_topic[topic])
        room_bytes -= sizes[topic]
    return tuple(EngineJob(topics) for topics in jobs)


def task_of(
    write: FileWrite,
    *,
    attempt: str,
    domain: int,
    message_bytes_max: int,
    field_ids: tuple[tuple[str, int], ...] = (),
) -> Task:
    """What the engine is asked for, under a key of this lease and attempt.

    `field_ids` are those of the table's columns where they are not those of a new table.
    """
    record = write.step.record
    if record.target is TaskTarget.LOG:
        return _segment_task(write, attempt=attempt, domain=domain)
    if record.is_replacing:
        task: CompactionTask | RewriteTask | RowsTask = _rewrite_task(write, attempt, domain)
    elif write.step.pieces[0].kind is FileKind.SEGMENT:
        task = _rows_task(write, attempt)
    else:
        task = _compaction_task(write, attempt, domain)
    return replace(task, batch_bytes_max=message_bytes_max, field_ids=field_ids)


def _segment_task(write: FileWrite, *, attempt: str, domain: int) -> SegmentTask:
    record = write.step.record
    return SegmentTask(
        task_id=record.name,
        attempt=attempt,
        domain=domain,
        stream=record.stream,
        start=record.start,
        end=record.end,
        pieces=_wal_pieces(write.step.pieces),
        key=output_key(record, attempt=attempt),
        created_ms=record.created_ms,
    )


def _rewrite_task(write: FileWrite, attempt: str, domain: int) -> RewriteTask:
    record = write.step.record
    assert (write.kept_offsets is None) == (record.target is TaskTarget.REWRITE), record
    return RewriteTask(
        task_id=record.name,
        attempt=attempt,
        domain=domain,
        stream=record.stream,
        topic_id=bytes(record.topic_id),
        topic=record.topic,
        partition=record.partition,
        start=record.start,
        end=record.end,
        pieces=_table_pieces(write.step.pieces, record.inputs),
        key=output_key(record, attempt=attempt),
        kept_offsets=write.kept_offsets,
    )


def _rows_task(write: FileWrite, attempt: str) -> RowsTask:
    record = write.step.record
    return RowsTask(
        task_id=record.name,
        attempt=attempt,
        stream=record.stream,
        topic_id=bytes(record.topic_id),
        topic=record.topic,
        partition=record.partition,
        start=record.start,
        end=record.end,
        pieces=_segment_pieces(write.step.pieces),
        key=output_key(record, attempt=attempt),
        log_start=write.step.log_start,
        batch_bytes_max=MESSAGE_BYTES_MAX,
    )


def _compaction_task(write: FileWrite, attempt: str, domain: int) -> CompactionTask:
    record = write.step.record
    return CompactionTask(
        task_id=record.name,
        attempt=attempt,
        domain=domain,
        stream=record.stream,
        topic_id=bytes(record.topic_id),
        topic=record.topic,
        partition=record.partition,
        start=record.start,
        end=record.end,
        pieces=_wal_pieces(write.step.pieces),
        key=output_key(record, attempt=attempt),
        log_start=write.step.log_start,
    )


def _wal_pieces(entries: Sequence[Entry]) -> tuple[WalPiece, ...]:
    pieces = []
    for one in entries:
        assert isinstance(one.name, WalName), one
        wal_id = bytes(one.name.wal_id)
        pieces.append(
            WalPiece(one.name.zone, wal_id, one.byte_start, one.byte_length, one.start, one.end)
        )
    return tuple(pieces)


def _table_pieces(entries: Sequence[Entry], inputs: Sequence[str]) -> tuple[TablePiece, ...]:
    pieces = []
    for one in entries:
        assert isinstance(one.name, FileName), one
        key = one.name.key
        pieces.append(TablePiece(key, one.byte_length, one.start, one.end, key in inputs))
    return tuple(pieces)


def _segment_pieces(entries: Sequence[Entry]) -> tuple[SegmentPiece, ...]:
    pieces = []
    for one in entries:
        assert isinstance(one.name, FileName), one
        pieces.append(SegmentPiece(one.name.key, one.byte_length, one.start, one.end))
    return tuple(pieces)


def fact_of(write: FileWrite, answer: Answer) -> Fact | str:
    """What the answer says for certain; a text when there is just nothing yet."""
    if not isinstance(answer, CompactionFailure):
        return FileWritten(_file(write, answer))
    said = f"{answer.object_key}: {answer.reason}" if answer.object_key else answer.reason
    match answer.trouble:
        case Trouble.MISSING:
            return InputsGone(said)
        case Trouble.UNREADABLE:
            return Unreadable(said, _quarantine(write, answer))
        case Trouble.CORRUPT if write.step.record.is_replacing:
            return Unreadable(said, (answer.start, answer.end))  # one file of several
        case Trouble.CORRUPT:
            return Unreadable(said)
        case Trouble.UNAVAILABLE:
            return said


def _quarantine(write: FileWrite, answer: CompactionFailure) -> tuple[int, int]:
    record = write.step.record
    if record.is_replacing:
        return answer.start, answer.end
    limit = max(record.end, answer.end)
    return widened(record.quarantine, start=answer.start, end=answer.end, limit=limit)


def _file(write: FileWrite, answer: CompactionResult | SegmentResult | RowsResult) -> DataFile:
    record, facts = write.step.record, answer.facts
    table_facts = None if isinstance(facts, SegmentFacts) else facts
    return DataFile(
        name=FileName(record.output_kind, answer.key),
        start=record.start,
        end=record.end,
        row_count=facts.record_count if isinstance(facts, SegmentFacts) else facts.row_count,
        size_bytes=facts.size_bytes,
        max_timestamp_ms=facts.max_timestamp_ms,
        facts=table_facts,
    )
