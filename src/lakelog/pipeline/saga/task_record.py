"""The durable record of a stream's compaction task: one key a stream, changed by CAS. Pure.

Key: `/lakelog/v1/compaction/<stream>`; value: JSON, about 500 bytes (and some
kB of `facts` between "written" and "committed"). One key a stream is what makes
"one active task a stream" true: a task begins by a compare-and-swap of the key from "absent" (0) or
from the version of a record that is at its end. The record of the last task stays until the next
one takes its place, and is deleted only after the stream itself is gone, so that `epoch` counts up
for the life of the stream.

Every change is a put with the version that was read. The holder of the lease is whoever wrote
`epoch` and its own name, unique for ever (`LeaseId`): claiming means writing `epoch + 1`. The name
matters once: a planner that found no key may create it again after the stream was dropped and its
record forgotten, and the epochs begin anew. Lease times are politeness and never safety; what keeps
two holders apart is (1) the version of each put, (2) that a holder who reads another lease than its
own stops, (3) the table's and the index's own checks. A put whose outcome is unknown is resolved by
reading: the record says what is true.

States, and what each says for certain:

    CREATED            the range is planned; files of attempts may exist, none counts
    PARQUET_WRITTEN    `file` is durable and final: no successor writes another
    ICEBERG_COMMITTED  a snapshot of the table names `file`, and the vector has passed the range
    INDEX_SWAPPED      no WAL entry is left in the range
    WAL_GC_READY       the end: a proved view of the index agreed; the sweeper may have the WAL
    ABORTED            given up, but a stale holder's commit may still land: `file` is kept
    CLOSED             the end of what was given up: nobody can ever commit it, it is garbage

A record is small because it holds no list of WAL entries: offsets have one value for ever, so the
WAL entries of [start, end) that the index shows are the inputs, whoever looks. A replacing task
names the files that it takes out of the table, because the table's files, not its vector, say
whether its commit has landed.

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
from enum import Enum
from typing import Final

import msgspec
from msgspec.structs import replace

from lakelog.meta.keys import ROOT
from lakelog.meta.port import VALUE_BYTES_MAX
from lakelog.model.failures import Corrupt, Refused
from lakelog.model.ids import TopicId
from lakelog.pipeline.saga.values import REPLACING, DataFile, PlannedTask, TaskTarget
from lakelog.streams.objects import FileKind

TASKS: Final = f"{ROOT}/compaction/"
RECORD_FORMAT: Final = 1
"""The layout of a record; a greater one was written by a newer version."""

PROBLEM_LENGTH_MAX: Final = 500

QUARANTINE_MAX: Final = 64
"""The ranges that a record remembers as unreadable; the newest are kept."""

INPUTS_MAX: Final = 1000
"""The files that one task may replace: their keys are in the record, of about 100 bytes each."""


class TaskState(Enum):
    """How far a task has come; the module says what each state proves."""

    CREATED = "created"
    PARQUET_WRITTEN = "parquet_written"
    ICEBERG_COMMITTED = "iceberg_committed"
    INDEX_SWAPPED = "index_swapped"
    WAL_GC_READY = "wal_gc_ready"
    ABORTED = "aborted"
    CLOSED = "closed"


ENDED: Final = frozenset({TaskState.WAL_GC_READY, TaskState.CLOSED})


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How far log compaction has come in a stream; true for ever once it is true.

    Below `end` no row is left that a later row below `end` supersedes, and below `tombstones_end`
    no tombstone. `passes` are (end, time): what lies below that end was cleaned by that time.
    """

    end: int = 0
    tombstones_end: int = 0
    passes: tuple[tuple[int, int], ...] = ()


class TaskRecord(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="format",
    tag=RECORD_FORMAT,
):
    """A stream's task, as its key holds it: these fields in this order, behind `format`."""

    stream: int
    topic_id_hex: str = msgspec.field(name="topic_id")
    topic: str
    partition: int
    task: int
    """The number of the task within its stream: the epoch it was created with."""
    target: TaskTarget
    start: int
    end: int
    expected: int | None
    """The partition's place in the table's vector that the range was planned from."""
    state: TaskState
    epoch: int
    holder: str
    lease_end_ms: int
    created_ms: int
    file: DataFile | None
    failures: int
    """How often in a row this range failed; carried over to the task that tries again."""
    problem: str
    quarantine: tuple[tuple[int, int], ...]
    """Ranges with batches that do not decode, and those of data files that cannot be read: the
    first become segments before their rows are in the table, the second are left as they are."""
    inputs: tuple[str, ...]
    """The keys of the table's files that a replacing task takes out, in order of offsets."""
    cleaned: Cleaned
    """What log compaction has achieved; goes along from task to task."""

    @property
    def topic_id(self) -> TopicId:
        """Which topic of that name it is."""
        return TopicId(bytes.fromhex(self.topic_id_hex))

    @property
    def name(self) -> str:
        """A name for people, and the id that the table's snapshots carry."""
        return f"{self.stream}-{self.task}"

    @property
    def input_kinds(self) -> tuple[set[FileKind], ...]:
        """What the range may lie in: one kind, or for a table also segments (`backfill`)."""
        if self.is_replacing:
            return ({FileKind.PARQUET},)
        wal, segments = {FileKind.WAL}, {FileKind.SEGMENT}
        return (wal, segments) if self.target is TaskTarget.TABLE else (wal,)

    @property
    def output_kind(self) -> FileKind:
        """What kind of file the task makes."""
        return FileKind.SEGMENT if self.target is TaskTarget.LOG else FileKind.PARQUET

    @property
    def is_replacing(self) -> bool:
        """Whether its inputs are files of the table, whose files, not its vector, then decide."""
        return self.target in REPLACING


def task_key(stream: int) -> str:
    """The key of a stream's record."""
    return f"{TASKS}{stream}"


def is_open(record: TaskRecord) -> bool:
    """Whether the task has something left to do; what an open record names is not deleted."""
    return record.state not in ENDED


@dataclass(frozen=True, slots=True)
class LeaseId:
    """What a holder of a task knows its lease by."""

    epoch: int
    holder: str


def lease_of(record: TaskRecord) -> LeaseId:
    """The lease that a record is under."""
    return LeaseId(record.epoch, record.holder)


@dataclass(frozen=True, slots=True)
class Lease:
    """Who takes a task and until when, by its own clock; `holder` is a name unique for ever."""

    holder: str
    end_ms: int


def create(previous: TaskRecord | None, planned: PlannedTask, lease: Lease) -> TaskRecord:
    """The record of a new task, put with the version that `previous` (or its absence) had."""
    assert previous is None or not is_open(previous), previous
    assert previous is None or previous.stream == planned.stream, planned
    epoch = 1 if previous is None else previous.epoch + 1
    retried = previous is not None and previous.end > planned.start
    carried = () if previous is None else previous.quarantine
    return TaskRecord(
        stream=planned.stream,
        topic_id_hex=planned.topic_id.hex(),
        topic=planned.topic,
        partition=planned.partition,
        task=epoch,
        target=planned.target,
        start=planned.start,
        end=planned.end,
        expected=planned.expected,
        state=TaskState.CREATED if planned.present is None else TaskState.ICEBERG_COMMITTED,
        epoch=epoch,
        holder=lease.holder,
        lease_end_ms=lease.end_ms,
        created_ms=planned.planned_ms,
        file=planned.present,
        failures=previous.failures if previous is not None and retried else 0,
        problem="",
        quarantine=carried[-QUARANTINE_MAX:],
        inputs=planned.inputs,
        cleaned=Cleaned() if previous is None else previous.cleaned,
    )


def with_cleaned(previous: TaskRecord, cleaned: Cleaned) -> TaskRecord:
    """The record of a task that ended, with what log compaction has achieved since.

    It may be put on whatever ended record is found, for it stays true whatever ran in between.
    """
    assert not is_open(previous), previous
    assert cleaned.end >= previous.cleaned.end, (previous, cleaned)
    return replace(previous, cleaned=cleaned)


def with_quarantine(previous: TaskRecord, *, start: int, end: int) -> TaskRecord:
    """The record of a task that ended, with a data file that a scan could not read."""
    assert not is_open(previous), previous
    return replace(previous, quarantine=(*previous.quarantine, (start, end))[-QUARANTINE_MAX:])


def claimable(record: TaskRecord, *, now_ms: int) -> bool:
    """Whether taking the task over is polite: it is open and its lease has run out."""
    return is_open(record) and now_ms >= record.lease_end_ms


def claim(record: TaskRecord, lease: Lease) -> TaskRecord:
    """The record under a new holder; everything of older epochs is void once it is put."""
    return replace(record, epoch=record.epoch + 1, holder=lease.holder, lease_end_ms=lease.end_ms)


def renew(record: TaskRecord, *, lease_end_ms: int) -> TaskRecord:
    """The record with a longer lease under the same epoch; 0 lets go of it."""
    return replace(record, lease_end_ms=lease_end_ms)


class _Format(msgspec.Struct, frozen=True):
    format: int


def encode_record(record: TaskRecord) -> bytes:
    """The record as its key's value."""
    _check(record)
    value = msgspec.json.encode(record)
    assert len(value) <= VALUE_BYTES_MAX, len(value)
    return value


def decode_record(value: bytes) -> TaskRecord:
    """The record of a value; `Corrupt` when it is none, `Refused` when a newer version wrote it."""
    try:
        written = msgspec.json.decode(value, type=_Format).format
        if written > RECORD_FORMAT:
            raise Refused(f"a compaction task has format {written}, this version knows 1: upgrade")
        record = msgspec.json.decode(value, type=TaskRecord)
        _check(record)
    except (msgspec.MsgspecError, ValueError, AssertionError) as error:
        raise Corrupt(f"a compaction task cannot be understood: {error}") from None
    return record


def _check(record: TaskRecord) -> None:
    """What holds of every record, written or read back."""
    assert record.stream > 0, record
    assert 0 <= record.start < record.end, record
    assert record.expected is None or 0 <= record.expected <= record.start, record
    assert 0 < record.task <= record.epoch, record
    assert len(record.topic_id) == 16, record
    assert len(record.problem) <= PROBLEM_LENGTH_MAX, record
    names_file = record.state not in (TaskState.CREATED, TaskState.CLOSED)
    assert names_file == (record.file is not None), record
    if record.file is not None:
        assert (record.file.start, record.file.end) == (record.start, record.end), record
    assert all(start < end for start, end in record.quarantine), record
    assert record.is_replacing or not record.inputs, record
    assert len(set(record.inputs)) == len(record.inputs) <= INPUTS_MAX, record
    ends = [end for end, _ in record.cleaned.passes]
    assert ends == sorted(set(ends)), record
    assert 0 <= record.cleaned.tombstones_end <= record.cleaned.end, record


FILES: Final = "compaction/v1/"
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
    return f"{FILES}topic={record.topic}/partition={record.partition}/{name}"


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
