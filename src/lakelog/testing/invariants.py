"""The invariants as checks, written once for unit, simulation and process tests.

Each check takes a state, a history or an inventory and returns a list of violations in words; an
empty list is good. The letters are those of `docs/invariants.md`.

A history is written by the clients themselves, whichever they are: simulated ones, or real ones of
a process test. Values are unique: a value says which send it came from.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from lakelog.domain.envelope import DomainRecord, Stamp
from lakelog.domain.state import Applied, Committed, DomainState, Ignored, Verdict
from lakelog.model.ids import DomainId
from lakelog.streams.index import EntryRow
from lakelog.streams.objects import FileName, ObjectName, WalName
from lakelog.streams.table import NONE, StreamFacts
from lakelog.wal.layout import object_key, parse_object_key, wal_id_time_ms


class OperationOutcome(Enum):
    """How an operation ended for its client."""

    OK = "ok"
    FAILED = "failed"
    """Definitely without effect, whatever was tried."""
    UNKNOWN = "unknown"
    """It may have happened, or may still happen."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One batch, with all its retries, as one operation.

    `number` counts the batches of a client on a stream in the order it sent them. `ordered` says
    that they must stand in that order, `once` that none may stand there twice: the producer is
    idempotent, or never retried.
    """

    client: str
    stream: int
    number: int
    values: tuple[str, ...]
    invoked_s: float
    returned_s: float
    ending: OperationOutcome
    base_offset: int = -1
    once: bool = True
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class HeardRead:
    """One answer to a read: records, or none, and the marks it came with.

    `connection` changes whenever the client connects anew. `proved` says that the answer claims
    to be current: it is empty, or asked for the newest offset.
    """

    client: str
    connection: str
    stream: int
    offset: int
    records: tuple[tuple[int, str], ...]
    log_start: int
    head: int
    invoked_s: float
    returned_s: float
    proved: bool


@dataclass(slots=True)
class History:
    """Everything that was sent and seen, in the order it returned."""

    sent: list[Sent] = field(default_factory=list)
    seen: list[HeardRead] = field(default_factory=list)
    final: dict[int, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    """Per stream, all that a fresh client reads at the end, from the log start to the head."""
    log_starts: dict[int, int] = field(default_factory=dict)
    """Per stream of `final`, its log start."""


Heads = dict[int, tuple[int, int]]
"""Per stream its log start and head."""


def entries_of(state: DomainState, stream: int) -> list[EntryRow]:
    """The index of one stream, in order."""
    row = state.streams.row_of[stream]
    return [state.index.entry(int(at)) for at in state.index.rows(state.streams, row)]


def key_of(state: DomainState, name: ObjectName) -> str:
    """The key of an object that the index names."""
    match name:
        case WalName(wal_id=wal_id, zone=zone):
            return object_key(zone, DomainId(state.domain), wal_id)
        case FileName(key=key):
            return key


def named_objects(state: DomainState) -> dict[str, int]:
    """The keys that entries name, with the size each object should have."""
    found = {}
    for stream in sorted(state.streams.row_of):
        for entry in entries_of(state, stream):
            name = state.objects.name(entry.object_row)
            found[key_of(state, name)] = state.objects.size_bytes(entry.object_row)
    return found


def check_tiling(state: DomainState, streams: Iterable[int] | None = None) -> list[str]:
    """L4: entries tile [log start, head) without gap or overlap; L5: the head is their end."""
    bad = []
    for stream in sorted(state.streams.row_of) if streams is None else streams:
        facts = state.streams.facts(stream)
        if facts is not None:
            bad += [f"{said} (stream {stream})" for said in _tile(facts, entries_of(state, stream))]
    return bad


def _tile(facts: StreamFacts, entries: list[EntryRow]) -> list[str]:
    bad = []
    if not 0 <= facts.log_start <= facts.head:
        bad.append(f"L4 log start {facts.log_start}, head {facts.head}")
    if sum(entry.byte_length for entry in entries) != facts.live_bytes:
        bad.append(f"L4 {facts.live_bytes} live bytes are not those of the entries")
    if not entries:
        missing = facts.log_start != facts.head
        return [*bad, f"L4 no entry for [{facts.log_start}, {facts.head})"] if missing else bad
    if not entries[0].start <= facts.log_start < entries[0].end:
        bad.append(f"L4 the first entry is {entries[0]}, the log starts at {facts.log_start}")
    if entries[-1].end != facts.head:
        bad.append(f"L5 head {facts.head}, last entry {entries[-1]}")
    bad += [f"L4 empty entry {one}" for one in entries if one.start >= one.end]
    for before, after in pairwise(entries):
        if before.end != after.start:
            bad.append(f"L4 {before} is followed by {after}")
    return bad


def heads_of(state: DomainState) -> Heads:
    """Log start and head of every stream."""
    found: Heads = {}
    for stream in state.streams.row_of:
        facts = state.streams.facts(stream)
        assert facts is not None
        found[stream] = facts.log_start, facts.head
    return found


def check_forward(before: Heads, after: Heads) -> list[str]:
    """L5: heads and log starts of streams that still exist never go back."""
    return [
        f"L5 stream {stream}: from {marks} to {after[stream]}"
        for stream, marks in before.items()
        if stream in after and (after[stream][0] < marks[0] or after[stream][1] < marks[1])
    ]


def check_references(state: DomainState) -> list[str]:
    """G3: the objects said to be referenced are exactly those that live entries name."""
    said = {key_of(state, state.objects.name(int(row))) for row in state.index.referenced()}
    named = set(named_objects(state))
    bad = [f"G3 {key}: said to be referenced, but no entry names it" for key in said - named]
    bad += [f"G3 {key}: named by an entry, but said to be free" for key in named - said]
    for row in range(state.index.columns.count):
        if int(state.index.columns["stream"][row]) == NONE:
            continue
        entry = state.index.entry(row)
        size = state.objects.size_bytes(entry.object_row)
        if entry.byte_start < 0 or entry.byte_start + entry.byte_length > size:
            bad.append(f"G3 {entry}: lies outside its object of {size} bytes")
    return sorted(bad)


def check_inventory(state: DomainState, inventory: Mapping[str, int]) -> list[str]:
    """L11: every object that an entry names exists and has its size."""
    return [
        f"L11 {key}: the index says {size} bytes, the store {inventory.get(key, 'nothing')}"
        for key, size in sorted(named_objects(state).items())
        if inventory.get(key) != size
    ]


def check_leaks(state: DomainState, inventory: Mapping[str, int], *, horizon_ms: int) -> list[str]:
    """G2: no WAL object older than a Horizon of some time ago is left without a name."""
    named = named_objects(state)
    bad = []
    for key in sorted(inventory):
        place = parse_object_key(key)
        if place is None or place.domain != state.domain or key in named:
            continue
        if wal_id_time_ms(place.wal_id) < horizon_ms:
            bad.append(f"G2 {key}: nobody names it and nobody deleted it")
    return bad


def check_deletion(state: DomainState, keys: Iterable[str]) -> list[str]:
    """G1: at the moment of the deletion no entry names the object."""
    named = named_objects(state)
    return [f"G1 {key}: deleted, but an entry names it" for key in keys if key in named]


def check_late_commit(state: DomainState, applied: Applied, deleted: set[str]) -> list[str]:
    """G4: a commit never names an object that was deleted before."""
    bad = []
    for event, outcome in zip(applied.record.events, applied.outcomes, strict=True):
        if isinstance(outcome, Committed) and Verdict.ACCEPTED in outcome.verdicts.tolist():
            name = WalName(event.wal_id, event.zone)  # type: ignore[union-attr]  # Committed answers a Commit
            if key_of(state, name) in deleted:
                bad.append(f"G4 {key_of(state, name)}: committed after it was deleted")
    return bad


def check_fencing(last: Mapping[str, Stamp], record: DomainRecord, applied: Applied) -> list[str]:
    """F1: whatever has an effect is stamped later than everything its writer did before."""
    if all(isinstance(outcome, Ignored) for outcome in applied.outcomes):
        return []
    before = last.get(record.writer)
    if before is not None and record.stamp <= before:
        return [f"F1 {record.writer}: {record.stamp} took effect after {before}"]
    return []


def check_history(history: History) -> list[str]:
    """L1, L2, L3, L6, L7, L8 and D1 of one history."""
    return [
        *check_acknowledged(history),
        *check_phantoms(history),
        *check_one_value(history),
        *check_order(history),
        *check_read_your_writes(history),
        *check_marks(history),
        *check_exactly_once(history),
    ]


def check_acknowledged(history: History) -> list[str]:
    """L1: what was acknowledged is read at its offset, unless it was trimmed."""
    bad = []
    for sent in history.sent:
        if sent.ending is not OperationOutcome.OK or sent.stream not in history.final:
            continue
        found = dict(history.final[sent.stream])
        for number, value in enumerate(sent.values):
            offset = sent.base_offset + number
            if offset >= history.log_starts[sent.stream] and found.get(offset) != value:
                bad.append(f"L1 {sent.client}: {value} is not at {sent.stream}/{offset}")
    return bad


def check_phantoms(history: History) -> list[str]:
    """L2: nothing is visible that failed definitely, or that nobody sent."""
    sent = {value: one for one in history.sent for value in one.values}
    bad = []
    for stream, offset, value in sorted(set(_visible(history))):
        origin = sent.get(value)
        if origin is None or origin.stream != stream:
            bad.append(f"L2 {stream}/{offset}: nobody sent {value} there")
        elif origin.ending is OperationOutcome.FAILED:
            bad.append(f"L2 {stream}/{offset}: {value} failed and is there")
    return bad


def check_one_value(history: History) -> list[str]:
    """L3: an offset has one value, whoever reads it and when."""
    values: dict[tuple[int, int], set[str]] = defaultdict(set)
    for stream, offset, value in _visible(history):
        values[stream, offset].add(value)
    for sent in history.sent:
        if sent.ending is OperationOutcome.OK:
            for number, value in enumerate(sent.values):
                values[sent.stream, sent.base_offset + number].add(value)
    return [
        f"L3 {stream}/{offset}: {sorted(found)}"
        for (stream, offset), found in sorted(values.items())
        if len(found) > 1
    ]


def check_order(history: History) -> list[str]:
    """L6: acknowledged batches of one client on one stream stand in the order it sent them."""
    last: dict[tuple[str, int], tuple[int, int]] = {}
    bad = []
    for sent in sorted(history.sent, key=lambda one: (one.client, one.stream, one.number)):
        if sent.ending is not OperationOutcome.OK or not sent.ordered:
            continue
        key = sent.client, sent.stream
        if key in last and sent.base_offset <= last[key][1]:
            bad.append(f"L6 {key}: batch {last[key]} stands after batch {sent.number}")
        last[key] = sent.number, sent.base_offset
    return bad


def check_read_your_writes(history: History) -> list[str]:
    """L7: an answer that claims to be current knows everything acknowledged before the question."""
    bad = []
    acknowledged = [one for one in history.sent if one.ending is OperationOutcome.OK]
    for seen in history.seen:
        if not seen.proved:
            continue
        for sent in acknowledged:
            end = sent.base_offset + len(sent.values)
            if sent.stream == seen.stream and sent.returned_s < seen.invoked_s and seen.head < end:
                who = f"{seen.client} on {seen.connection} at {seen.invoked_s:.3f}"
                when = f"{end} was acknowledged at {sent.returned_s:.3f}"
                bad.append(f"L7 {who}: head of {seen.stream} is {seen.head}, {when}")
    return bad


def check_marks(history: History) -> list[str]:
    """L8: on one connection, head and log start of a stream never go back."""
    last: dict[tuple[str, str, int], tuple[int, int]] = {}
    bad = []
    for seen in sorted(history.seen, key=lambda one: one.invoked_s):
        key = seen.client, seen.connection, seen.stream
        before = last.get(key, (0, 0))
        if seen.log_start < before[0] or seen.head < before[1]:
            bad.append(f"L8 {key}: marks went from {before} to {(seen.log_start, seen.head)}")
        last[key] = seen.log_start, seen.head
    return bad


def check_exactly_once(history: History) -> list[str]:
    """D1: a value that was sent once stands at one offset, and offsets have no gap."""
    bad = []
    once = {value for one in history.sent if one.once for value in one.values}
    for stream, records in sorted(history.final.items()):
        counted = Counter(value for _, value in records)
        bad += [
            f"D1 {stream}: {value} stands there {count} times"
            for value, count in sorted(counted.items())
            if count > 1 and value in once
        ]
        offsets = [offset for offset, _ in records]
        bad += [
            f"D1 {stream}: offset {before} is followed by {after}"
            for before, after in pairwise(offsets)
            if after != before + 1
        ]
    return bad


def _visible(history: History) -> Iterable[tuple[int, int, str]]:
    for seen in history.seen:
        for offset, value in seen.records:
            yield seen.stream, offset, value
    for stream, records in history.final.items():
        for offset, value in records:
            yield stream, offset, value
