"""apply: what a record of the domain log means. Pure, deterministic, the same everywhere.

A record is decoded and checked whole before anything changes (rule 10); bad content is a refused
outcome, a record that cannot be understood raises `Corrupt` and stops the domain at it (rule 11).
A record whose stamp is not newer than its writer's last has no effect (rule 3), and neither has
one of a new incarnation that does not begin with `Hello` (rule 8).

A Write takes in the objects of an application's version, all of them or none, once (`write`).
Everything is looked at before anything changes (rule 10). Without producer ids a batch of a known
stream in an object that is not void is always accepted, so what was looked at is what happens.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from lakelog.domain.commit_event import WRITES_LEVEL, Commit, ExpireWrites, Write
from lakelog.domain.envelope import DomainRecord, decode_record
from lakelog.domain.events import (
    Barrier,
    Create,
    Drop,
    Event,
    ExpireProducers,
    Genesis,
    GroupChange,
    Hello,
    Horizon,
    Swap,
    Trim,
    Upgrade,
)
from lakelog.domain.judge import commit, wal_time_ms
from lakelog.domain.state import (
    APPLICATIONS_MAX,
    LEVEL_MAX,
    Applied,
    DomainState,
    Done,
    GroupApplied,
    Ignored,
    LastWrite,
    Outcome,
    Swapped,
    Trimmed,
    WriteVerdict,
    Written,
)
from lakelog.groups.events import GroupEventResult, decode_group_event
from lakelog.groups.parts import PARTS_LEVEL, GroupPart, PendingParts, taken
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Corrupt
from lakelog.streams.objects import digest
from lakelog.streams.table import NONE


def write(state: DomainState, event: Write) -> Written:
    """Judge the Write as a whole, and take it in if nothing speaks against it."""
    if state.level < WRITES_LEVEL:
        # Nobody appends one before the Upgrade; should it be there, it means nothing (rule 12).
        return Written(WriteVerdict.TOO_EARLY)
    last = state.writes.get(event.application)
    if last is not None and event.version <= last.version:
        return Written(WriteVerdict.ALREADY)  # X1: also when its objects are void by now
    if last is None and len(state.writes) >= APPLICATIONS_MAX:
        return Written(WriteVerdict.APPLICATIONS_FULL)
    times_ms = [wal_time_ms(one.wal_id) for one in event.commits]
    if min(times_ms) < state.horizon_ms:
        return Written(WriteVerdict.VOID)
    unknown = _unknown(state, event)
    if unknown:
        return Written(WriteVerdict.UNKNOWN_STREAM, unknown=unknown)
    state.writes[event.application] = LastWrite(event.version, max(times_ms))
    return Written(WriteVerdict.TAKEN, tuple(commit(state, one) for one in event.commits))


def expire_writes(state: DomainState, event: ExpireWrites) -> Done:
    """B9: nothing younger than the Horizon is forgotten, or a late repeat could land twice."""
    cutoff_ms = min(event.cutoff_ms, state.horizon_ms)
    old = [name for name, last in state.writes.items() if last.time_ms < cutoff_ms]
    for name in old:
        del state.writes[name]
    return Done()


def _unknown(state: DomainState, event: Write) -> tuple[int, ...]:
    streams = np.unique(np.concatenate([one.stream for one in event.commits]))
    missing = streams[state.streams.rows(streams) == NONE]
    return tuple(missing.tolist())


def apply(state: DomainState, data: bytes | memoryview) -> Applied:
    """Fold the next record into the state and say what became of each of its events."""
    return apply_record(state, decode_record(data, level_max=LEVEL_MAX))


def apply_record(state: DomainState, record: DomainRecord) -> Applied:
    """Fold the next record, decoded and checked already, into the state."""
    _check_place(state, record)
    state.position += 1
    if not _is_news(state, record):
        return Applied(state.position, record, (Ignored(),) * len(record.events))
    state.writers[record.writer] = record.stamp
    outcomes = tuple(_EFFECTS[type(event)](state, record, event) for event in record.events)
    if state.is_sparse():
        state.pack()
    return Applied(state.position, record, outcomes)


def _check_place(state: DomainState, record: DomainRecord) -> None:
    """Rule 15: a log begins with its Genesis and holds no other; rule 12: levels are known."""
    if state.position == 0 and not isinstance(record.events[0], Genesis):
        raise Corrupt("the domain log does not begin with Genesis")
    for event in record.events:
        if isinstance(event, Genesis | Upgrade) and event.level > LEVEL_MAX:
            raise Corrupt(f"the domain is at level {event.level}, this version knows {LEVEL_MAX}")
        if isinstance(event, Genesis) and state.position > 0:
            _check_founder(state, event)


def _check_founder(state: DomainState, event: Genesis) -> None:
    """Two brokers may found a log at once: the second Genesis is a repeat, or a stranger's."""
    if (event.cluster_id, event.domain) != (state.cluster_id, state.domain):
        raise Corrupt(
            f"the log of domain {state.domain} of cluster {state.cluster_id} holds the Genesis of"
            f" domain {event.domain} of cluster {event.cluster_id}"
        )


def _is_news(state: DomainState, record: DomainRecord) -> bool:
    last = state.writers.get(record.writer)
    if last is not None and record.stamp <= last:
        return False
    if last is not None and record.stamp.incarnation == last.incarnation:
        return True
    return isinstance(record.events[0], Hello | Genesis)


def _create(state: DomainState, _: DomainRecord, event: Create) -> Done:
    state.streams.add(
        event.streams.tolist(),
        topic=event.topic,
        first_partition=event.first_partition,
        position=state.position,
    )
    return Done()


def _genesis(state: DomainState, _: DomainRecord, event: Genesis) -> Done:
    state.cluster_id, state.domain = event.cluster_id, event.domain
    state.level = max(state.level, event.level)  # a repeated Genesis takes no Upgrade back
    return Done()


def _hello(state: DomainState, record: DomainRecord, event: Hello) -> Done:
    state.supported[record.writer] = event.supported_level
    state.parts.pop(record.writer, None)  # the rest of an event that was under way never comes
    return Done()


def _horizon(state: DomainState, _: DomainRecord, event: Horizon) -> Done:
    state.horizon_ms = max(state.horizon_ms, event.time_ms)
    return Done()


def _upgrade(state: DomainState, _: DomainRecord, event: Upgrade) -> Done:
    state.level = max(state.level, event.level)
    return Done()


def _drop(state: DomainState, _: DomainRecord, event: Drop) -> Done:
    named = dict.fromkeys(event.streams.tolist())  # each once, whatever the record says
    known = [stream for stream in named if stream in state.streams.row_of]
    rows = [state.streams.row_of[stream] for stream in known]
    state.producers.forget(state.producers.of_streams(rows).tolist(), expired=False)
    for stream, row in zip(known, rows, strict=True):
        state.index.trim(state.streams, row, int(state.streams.columns.arrays["head"][row]))
        state.streams.remove(stream, position=state.position)
    return Done()


def _trim(state: DomainState, _: DomainRecord, event: Trim) -> Trimmed:
    """Log starts move forward only, and never beyond the head (T6)."""
    columns = state.streams.columns.arrays
    log_starts = np.full(len(event.streams), -1, dtype=np.int64)
    for number, stream in enumerate(event.streams.tolist()):
        row = state.streams.row_of.get(stream)
        if row is None:
            continue
        wanted = min(int(event.offsets[number]), int(columns["head"][row]))
        if wanted > int(columns["log_start"][row]):
            gone_bytes = state.index.trim(state.streams, row, wanted)
            columns["log_start"][row] = wanted
            columns["live_bytes"][row] -= gone_bytes
            columns["gone_bytes"][row] += gone_bytes
            columns["changed"][row] = state.position
        log_starts[number] = columns["log_start"][row]
    return Trimmed(log_starts)


def _expire_producers(state: DomainState, _: DomainRecord, event: ExpireProducers) -> Done:
    """B9: nothing younger than the Horizon is forgotten, or a late commit could land twice."""
    rows = state.producers.older_than(min(event.cutoff_ms, state.horizon_ms))
    columns = state.streams.columns.arrays
    for row in rows.tolist():
        stream_row = int(state.producers.columns.arrays["stream"][row])
        if int(columns["producer"][stream_row]) == row:
            columns["producer"][stream_row] = NONE
        columns["changed"][stream_row] = state.position
    state.producers.forget(rows.tolist(), expired=True)
    return Done()


def _swap(state: DomainState, _: DomainRecord, event: Swap) -> Swapped:
    """T4: the file must cover exactly what trimming left of its range, made of what it was."""
    row = state.streams.row_of.get(event.stream)
    if row is None:
        return Swapped(False, "the stream is gone")
    ordered = state.index.rows(state.streams, row)
    starts = state.index.columns.arrays["start"][ordered]
    ends = state.index.columns.arrays["end"][ordered]
    inside = (starts >= event.start) & (ends <= event.end)
    old = ordered[inside]
    if not len(old) or int(ends[inside][-1]) != event.end:
        return Swapped(False, "the range does not end where an entry ends")
    if int(starts[inside][0]) != event.start and int(old[0]) != int(ordered[0]):
        return Swapped(False, "the range does not begin where an entry begins")
    names = {digest(state.objects.name(int(o))) for o in state.index.columns["object"][old]}
    if not names <= set(event.replaces):
        return Swapped(False, "the range holds objects that the file was not made of")
    columns = state.streams.columns.arrays
    held_bytes = int(state.index.columns.arrays["byte_length"][old].sum())
    state.index.replace(
        state.streams,
        row,
        old,
        {
            "stream": row,
            "start": int(starts[inside][0]),
            "end": event.end,
            "object": state.objects.add(event.file, size_bytes=event.size_bytes),
            "byte_start": 0,
            "byte_length": event.size_bytes,
            "max_timestamp": event.max_timestamp_ms,
        },
    )
    columns["live_bytes"][row] += event.size_bytes - held_bytes
    columns["changed"][row] = state.position
    return Swapped(True)


def _group(state: DomainState, _: DomainRecord, event: GroupChange) -> GroupApplied:
    return GroupApplied(state.groups.apply(event.event, position=state.position))


def _group_part(state: DomainState, record: DomainRecord, event: GroupPart) -> GroupApplied | Done:
    """K10: nothing of an event is seen before all of it is there; then it is like any other."""
    if state.level < PARTS_LEVEL:
        return _REFUSED  # nobody appends one before the Upgrade (rule 12)
    found = taken(state.parts.pop(record.writer, None), event)
    if found is None:
        return _REFUSED
    if isinstance(found, PendingParts):
        state.parts[record.writer] = found
        return Done()
    try:
        whole = decode_group_event(memoryview(found.data))
    except Corrupt:
        return _REFUSED  # only all of it shows that it makes no sense (rule 10)
    return _group(state, record, GroupChange(whole))


_REFUSED: Final = GroupApplied(GroupEventResult(ErrorCode.UNKNOWN_SERVER_ERROR))


_EFFECTS: Final[dict[type[Event], Callable[[DomainState, DomainRecord, Any], Outcome]]] = {
    Barrier: lambda _state, _record, _event: Done(),
    Commit: lambda state, _record, event: commit(state, event),
    Create: _create,
    Drop: _drop,
    ExpireProducers: _expire_producers,
    ExpireWrites: lambda state, _record, event: expire_writes(state, event),
    Genesis: _genesis,
    GroupChange: _group,
    GroupPart: _group_part,
    Hello: _hello,
    Horizon: _horizon,
    Swap: _swap,
    Trim: _trim,
    Upgrade: _upgrade,
    Write: lambda state, _record, event: write(state, event),
}
