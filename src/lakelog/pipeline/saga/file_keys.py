"""The keys of data files, and which file nobody will ever name any more. Pure.

A key says which task the file was made for, under which lease epoch, and by which attempt: attempts
that run at once (a rival, a copy that the engine started, a zombie) never share a key. Only the
holder of an epoch can make a file of that epoch count, and an epoch never comes back. So a file is
garbage for ever, and may be swept, when

- it was listed, and after that
- the stream's task record was read and can never name it again (`may_be_named`), and after that
- no live snapshot of the table and no index entry named it.

In this order: a file moves from record to table to index and is named by the next before the last
lets go of it. Two passes one grace apart protect readers (rule 19), not this argument.
"""

import re
from dataclasses import dataclass
from typing import Final

from lakelog.pipeline.saga.task_record import TaskRecord, TaskState, is_open
from lakelog.pipeline.saga.values import DataFile
from lakelog.streams.objects import FileKind

ROOT: Final = "compaction/v1/"
_ATTEMPT: Final = re.compile(r"[0-9a-z]{1,32}")
_SUFFIXES: Final = {FileKind.PARQUET: "parquet", FileKind.SEGMENT: "kfs"}
_KINDS: Final = {suffix: kind for kind, suffix in _SUFFIXES.items()}
_KEY: Final = re.compile(
    r"compaction/v1/topic=(?P<topic>[a-zA-Z0-9._-]{1,249})/partition=(?P<partition>0|[1-9][0-9]*)"
    r"/(?P<stream>[1-9][0-9]*)-(?P<task>[1-9][0-9]*)-(?P<epoch>[1-9][0-9]*)"
    r"-(?P<attempt>[0-9a-z]{1,32})\.(?P<suffix>parquet|kfs)"
)


@dataclass(frozen=True, slots=True)
class Origin:
    """What the key of a data file says."""

    topic: str
    partition: int
    stream: int
    task: int
    """The number of the task: the epoch it was created with."""
    epoch: int
    attempt: str
    kind: FileKind


def output_key(record: TaskRecord, *, attempt: str) -> str:
    """Where an attempt under the record's present lease puts its file; `attempt` is chance."""
    assert _ATTEMPT.fullmatch(attempt), attempt
    suffix = _SUFFIXES[record.output_kind]
    name = f"{record.stream}-{record.task}-{record.epoch}-{attempt}.{suffix}"
    return f"{ROOT}topic={record.topic}/partition={record.partition}/{name}"


def parse_output_key(key: str) -> Origin | None:
    """What the key says, or None when it is not exactly what `output_key` makes."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    return Origin(
        topic=match["topic"],
        partition=int(match["partition"]),
        stream=int(match["stream"]),
        task=int(match["task"]),
        epoch=int(match["epoch"]),
        attempt=match["attempt"],
        kind=_KINDS[match["suffix"]],
    )


def is_made_for(record: TaskRecord, file: DataFile) -> bool:
    """Whether a file is of the record's range, lease and kind: a zombie's result is not used."""
    origin = parse_output_key(file.key)
    return (
        origin is not None
        and (origin.stream, origin.task, origin.epoch) == (record.stream, record.task, record.epoch)
        and (file.start, file.end) == (record.start, record.end)
        and origin.kind is file.kind is record.output_kind
    )


def may_be_named(origin: Origin, key: str, record: TaskRecord | None) -> bool:
    """Whether the stream's task record, as it is now, names the file or may come to name it.

    None stands for a record that is not there: the stream was dropped, and its id never comes back.
    """
    if record is None or record.stream != origin.stream:
        return False
    if is_open(record) and record.file is not None and record.file.key == key:
        return True
    return record.state is TaskState.CREATED and record.epoch <= origin.epoch
