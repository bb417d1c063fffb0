"""From a step that asks for a file to an engine's task, and from its answer to a fact. Pure.

A job is what the engine is asked for at once. A topic with much to read is a job of its own, small
ones share jobs, and no topic is in two: its files are there together and go into one commit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lakelog.index.entries import Entry
from lakelog.pipeline.files.file_task import (
    FailureKind,
    FileAnswer,
    FileFailure,
    FileResult,
    FileTask,
    Inputs,
    SegmentInputs,
    SegmentPiece,
    TableInputs,
    TablePiece,
    WalInputs,
    WalPiece,
)
from lakelog.pipeline.planning.wal_ranges import widened
from lakelog.pipeline.saga.observe import LeasedTask
from lakelog.pipeline.saga.steps import WriteFile
from lakelog.pipeline.saga.task_record import output_key
from lakelog.pipeline.saga.values import (
    DataFile,
    Fact,
    FileWritten,
    InputNotFound,
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
        return sum(entry.byte_length for entry in self.step.pieces)


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
    sizes = {topic: sum(write.input_bytes for write in group) for topic, group in by_topic.items()}
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
) -> FileTask:
    """What the engine is asked for, under a key of this lease and attempt.

    `field_ids` are those of the table's columns where they are not those of a new table.
    """
    record = write.step.record
    return FileTask(
        task_id=record.name,
        attempt=attempt,
        stream=record.stream,
        topic_id=bytes(record.topic_id),
        topic=record.topic,
        partition=record.partition,
        start=record.start,
        end=record.end,
        inputs=_inputs(write, domain),
        output=record.output_kind,
        key=output_key(record, attempt=attempt),
        log_start=write.step.log_start,
        field_ids=field_ids,
        batch_bytes_max=message_bytes_max,
        created_ms=record.created_ms,
    )


def _inputs(write: FileWrite, domain: int) -> Inputs:
    record, entries = write.step.record, write.step.pieces
    if record.is_replacing:
        assert (write.kept_offsets is None) == (record.target is TaskTarget.REWRITE), record
        return TableInputs(_table_pieces(entries, record.inputs), write.kept_offsets)
    if entries[0].kind is FileKind.SEGMENT:
        return SegmentInputs(_segment_pieces(entries))
    return WalInputs(domain, _wal_pieces(entries))


def _wal_pieces(entries: Sequence[Entry]) -> tuple[WalPiece, ...]:
    pieces = []
    for entry in entries:
        assert isinstance(entry.name, WalName), entry
        zone, wal_id = entry.name.zone, bytes(entry.name.wal_id)
        span = entry.byte_start, entry.byte_length
        pieces.append(WalPiece(zone, wal_id, *span, entry.start, entry.end))
    return tuple(pieces)


def _table_pieces(entries: Sequence[Entry], inputs: Sequence[str]) -> tuple[TablePiece, ...]:
    return tuple(
        TablePiece(piece.key, piece.size_bytes, piece.start, piece.end, piece.key in inputs)
        for piece in _segment_pieces(entries)
    )


def _segment_pieces(entries: Sequence[Entry]) -> tuple[SegmentPiece, ...]:
    pieces = []
    for entry in entries:
        assert isinstance(entry.name, FileName), entry
        pieces.append(SegmentPiece(entry.name.key, entry.byte_length, entry.start, entry.end))
    return tuple(pieces)


def fact_of(write: FileWrite, answer: FileAnswer) -> Fact | str:
    """What the answer says for certain; a text when there is just nothing yet."""
    if isinstance(answer, FileResult):
        return FileWritten(_file(write, answer))
    said = f"{answer.object_key}: {answer.reason}" if answer.object_key else answer.reason
    match answer.trouble:
        case FailureKind.MISSING:
            return InputNotFound(said)
        case FailureKind.UNREADABLE:
            return Unreadable(said, _quarantine(write, answer))
        case FailureKind.CORRUPT if write.step.record.is_replacing:
            return Unreadable(said, (answer.start, answer.end))  # one file of several
        case FailureKind.CORRUPT:
            return Unreadable(said)
        case FailureKind.UNAVAILABLE:
            return said


def _quarantine(write: FileWrite, answer: FileFailure) -> tuple[int, int]:
    record = write.step.record
    if record.is_replacing:
        return answer.start, answer.end
    limit = max(record.end, answer.end)
    return widened(record.quarantine, start=answer.start, end=answer.end, limit=limit)


def _file(write: FileWrite, answer: FileResult) -> DataFile:
    record, facts = write.step.record, answer.facts
    return DataFile(
        key=answer.key,
        kind=record.output_kind,
        start=record.start,
        end=record.end,
        row_count=facts.record_count if isinstance(facts, SegmentFacts) else facts.row_count,
        size_bytes=facts.size_bytes,
        max_timestamp_ms=facts.max_timestamp_ms,
        facts=None if isinstance(facts, SegmentFacts) else facts,
    )
