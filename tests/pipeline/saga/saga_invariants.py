"""What must hold of the saga in every state, and what its end must look like."""

from tests.pipeline.saga.saga_state import (
    Index,
    SagaState,
    Setup,
    Stored,
    entry_of,
    has_rows,
    is_wal,
    key_of,
    replaceable,
)

from lakelog.pipeline.saga.task_record import is_open
from lakelog.pipeline.saga.values import TaskTarget
from lakelog.streams.objects import FileKind


def flaw(state: SagaState) -> str | None:
    """What must not be in this state, None when all is well."""
    return _missing(state) or _index_flaw(state.stream) or _table_flaw(state) or _swap_flaw(state)


def _missing(state: SagaState) -> str | None:
    """Whatever a snapshot, an entry or an open task names is there and holds what they say."""
    held = {one.name: one for one in state.files}
    named = [*state.table.files, *state.stream.entries]
    record = state.record
    if record is not None and is_open(record) and record.file is not None:
        named.append(Stored(record.file.name, record.file.start, record.file.end))
    for one in named:
        found = held.get(one.name)
        if found is None:
            return f"{one.name} is named and not there"
        if found.end != one.end or found.start > one.start:
            return f"{one.name} does not hold [{one.start}, {one.end})"
    return None


def _table_flaw(state: SagaState) -> str | None:
    """The files tile [table start, vector), but for what the log has nothing for."""
    reach = 0
    table = state.table
    for one in table.files:
        if one.start < reach:
            return f"rows from {one.start} on are in the table twice"
        if any(_wants(state, offset) for offset in range(reach, one.start)):
            return f"rows of [{reach}, {one.start}) are missing in the table"
        reach = one.end
    vector = table.vector or 0
    if any(_wants(state, offset) for offset in range(reach, vector)):
        return f"rows of [{reach}, {vector}) are missing in the table"
    return None if reach <= vector else f"rows from {vector} on are in the table twice, later"


def _wants(state: SagaState, offset: int) -> bool:
    """Whether the log has rows here for the table: not trimmed, not cleaned away."""
    index = state.stream
    if not index.alive or offset < index.log_start:
        return False
    (entry,) = [one for one in index.entries if one.start <= offset < one.end]
    if entry_of(entry).kind is not FileKind.PARQUET:
        return True
    emptied = state.record is not None and state.record.target is TaskTarget.CLEAN
    return has_rows(entry) and not (emptied and key_of(entry) in _replaced(state))


def _replaced(state: SagaState) -> tuple[str, ...]:
    """The files that the table has let go for what an open task made of them."""
    record = state.record
    if record is None or not is_open(record) or record.file is None:
        return ()
    named = {key_of(one) for one in state.table.files}
    if not record.file.row_count:
        return () if named & set(record.inputs) else record.inputs
    return record.inputs if record.file.name.key in named else ()


def _index_flaw(index: Index) -> str | None:
    """The entries tile [log start, head); only the first may begin before the log start."""
    if not index.alive:
        return None
    reach = index.entries[0].start if index.entries else index.head
    for one in index.entries:
        if one.start != reach:
            return f"the index has a hole or an overlap at {reach}"
        reach = one.end
    covers = not index.entries or index.entries[0].start <= index.log_start < index.entries[0].end
    if reach != index.head or not covers:
        return f"the index does not cover [{index.log_start}, {index.head})"
    if not index.entries and index.log_start != index.head:
        return "the index is empty and the log is not"
    return None


def _swap_flaw(state: SagaState) -> str | None:
    """A data file is in the index only if the table has it, or has what an open task made of it."""
    named = {key_of(one) for one in state.table.files} | set(_replaced(state))
    for one in state.stream.entries:
        if entry_of(one).kind is not FileKind.PARQUET or not has_rows(one):
            continue
        if key_of(one) not in named:
            return f"the index names {one.name}, the table does not"
    return None


def is_good_end(state: SagaState, setup: Setup) -> bool:
    """Everything compacted, the record at its end, and nothing in the store that nobody names."""
    record, index = state.record, state.stream
    if state.flying or state.sweep or any(one.at != "idle" for one in state.workers):
        return False
    if any(is_wal(one) for one in index.entries) or replaceable(index, setup):
        return False
    if index.entries and index.entries[-1].end > (state.table.vector or 0):
        return False
    if record is not None and (is_open(record) or not index.alive):
        return False
    named = {one.name for one in (*state.table.files, *index.entries)}
    return all(one.name in named for one in state.files)
