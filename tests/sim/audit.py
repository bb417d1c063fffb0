"""The auditor folds every record at the moment it lands and checks what may never happen."""

from hashlib import sha256

import msgspec
from tests.domain.test_checkpoint_model import checkpoint_of

from lakelog.domain.checkpoint_store import CheckpointPointer
from lakelog.domain.envelope import DomainRecord, decode_record
from lakelog.domain.events import Drop, Horizon, Swap, Trim
from lakelog.domain.machine import apply_record
from lakelog.domain.state import LEVEL_MAX, Applied, Committed, DomainState, Ignored, Verdict
from lakelog.meta import keys
from lakelog.testing.faulty import Journal, Mutation
from lakelog.testing.invariants import (
    Heads,
    check_deletion,
    check_fencing,
    check_forward,
    check_late_commit,
    check_tiling,
    heads_of,
    named_objects,
)
from lakelog.testing.simulation import EPOCH_MS
from lakelog.wal.layout import parse_object_key


class Auditor:
    """The true state of domain 0, and everything wrong that was seen."""

    def __init__(self, journal: Journal, *, checkpoint_records: int, grace_ms: int) -> None:
        self.state = DomainState()
        self.violations: list[str] = []
        self.reached: set[str] = set()
        self._deleted: set[str] = set()
        self._heads: Heads = {}
        self._pointer: CheckpointPointer | None = None
        self._digests: dict[int, str] = {}
        self._released_s: dict[str, float] = {}
        self._checkpoint_records = checkpoint_records
        self._grace_s = grace_ms / 1000
        journal.listeners.append(self._hear)

    def heads(self) -> Heads:
        """Log start and head of every stream, in truth."""
        return self._heads

    def _hear(self, mutation: Mutation) -> None:
        match mutation.kind, mutation.name:
            case "append", _:
                self._append(mutation)
            case "delete", key:
                self._delete(key, mutation.at_s)
            case "put", key if key in self._deleted:
                self.reached.add("an object was put again after it was deleted")
            case "key", key if key == keys.checkpoint(0):
                self._point(mutation.data)
            case "trim", _:
                self._trim(mutation.position)
            case _:
                pass

    def _append(self, mutation: Mutation) -> None:
        if mutation.position != self.state.position + 1:
            self.violations.append(f"R1 position {mutation.position} after {self.state.position}")
            return
        record = decode_record(mutation.data, level_max=LEVEL_MAX)
        before = dict(self.state.writers)
        releases = any(isinstance(event, Trim | Drop | Swap) for event in record.events)
        named = set(named_objects(self.state)) if releases else set()
        applied = apply_record(self.state, record)
        if releases:
            for key in named - named_objects(self.state).keys():
                self._released_s[key] = mutation.at_s
        self._judge_clock(record, mutation.at_s)
        after = heads_of(self.state)
        self.violations += check_fencing(before, record, applied)
        self.violations += check_late_commit(self.state, applied, self._deleted)
        self.violations += check_tiling(self.state)
        self.violations += check_forward(self._heads, after)
        self._heads = after
        self._reach(applied)
        if self.state.position % self._checkpoint_records == 0:
            self._digests[self.state.position] = sha256(checkpoint_of(self.state)[0]).hexdigest()

    def _judge_clock(self, record: DomainRecord, at_s: float) -> None:
        """Rule 20: records that delete by age come from a clock that is nearly right."""
        for event in record.events:
            if isinstance(event, Horizon) and event.time_ms > EPOCH_MS + at_s * 1000 + 60_000:
                self.violations.append(f"R20 a Horizon of the future: {event}")

    def _delete(self, key: str, at_s: float) -> None:
        if parse_object_key(key) is None:
            return
        if at_s - self._released_s.get(key, 0.0) < self._grace_s and key in self._released_s:
            self.violations.append(f"C3 {key}: deleted right after it was released")
        self.violations += check_deletion(self.state, [key])
        self._deleted.add(key)
        self.reached.add("a WAL object was swept")

    def _point(self, data: bytes) -> None:
        """Rule 14: the pointer moves forward, to what the log means at that position."""
        pointer = msgspec.msgpack.decode(data, type=CheckpointPointer)
        newest = pointer.kept[0]
        before = self._pointer.kept[0].position if self._pointer else 0
        if newest.position <= before:
            self.violations.append(f"R14 the pointer moved from {before} to {newest.position}")
        for kept in pointer.kept:
            if self._digests.get(kept.position) != kept.digest:
                self.violations.append(f"R13 the checkpoint at {kept.position} says something else")
        self._pointer = pointer
        self.reached.add("the pointer moved")

    def _trim(self, before: int) -> None:
        """Rule 14: every kept checkpoint can still be continued."""
        if self._pointer is None or before > self._pointer.kept[-1].position + 1:
            self.violations.append(f"R14 the log was trimmed to {before}, beyond {self._pointer}")
        self.reached.add("the log was trimmed")

    def _reach(self, applied: Applied) -> None:
        for outcome in applied.outcomes:
            if isinstance(outcome, Ignored):
                newest = self.state.writers.get(applied.record.writer)
                repeat = newest and newest.incarnation == applied.record.stamp.incarnation
                self.reached.add("a repeat was ignored" if repeat else "a zombie was fenced")
            if isinstance(outcome, Committed):
                for verdict in set(outcome.verdicts.tolist()):
                    self.reached.add(f"a batch was {Verdict(verdict).name}")
