"""What must hold after a broker was killed, as a pure check of acknowledgements against the log.

Every acknowledged record is at its acknowledged offset; offsets are contiguous from 0; the records
of an idempotent producer appear once each and in order, without holes other than records that the
client was told had failed. A plain producer may repeat and reorder what it had to retry.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from enum import Enum

PayloadFields = tuple[str, int, str, int]


class Fault(Enum):
    """The kinds of broken promise."""

    LOST = "lost"
    MISPLACED = "misplaced"
    DUPLICATE = "duplicate"
    REORDERED = "reordered"
    HOLE = "hole"
    GAP = "gap"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """Who wrote a record: producer, partition, and the producer's count in that partition."""

    producer: str
    partition: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Ack:
    """A promise of the broker: this record is at this offset."""

    stamp: Stamp
    offset: int


@dataclass(frozen=True, slots=True)
class Logged:
    """A record as it was read: where, and by whom its payload says it was written."""

    partition: int
    offset: int
    stamp: Stamp | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise."""

    fault: Fault
    text: str


@dataclass(frozen=True, slots=True)
class History:
    """Everything that clients were told: acknowledgements, failures, and who is idempotent."""

    acks: Sequence[Ack]
    failed: Set[Stamp]
    idempotent: Set[str]


def encode_payload(topic: str, stamp: Stamp, padding: int) -> bytes:
    """Return a payload that says where it belongs."""
    text = f"{topic}|{stamp.partition}|{stamp.producer}|{stamp.sequence}|"
    return text.encode() + b"." * padding


def parse_payload(topic: str, payload: bytes | None) -> Stamp | None:
    """Return who wrote a payload; None if it is not one of ours or of another topic."""
    fields = (payload or b"").split(b"|")
    if len(fields) != 5 or fields[0] != topic.encode():
        return None
    if not fields[1].isdigit() or not fields[3].isdigit():
        return None
    return Stamp(fields[2].decode(errors="replace"), int(fields[1]), int(fields[3]))


def check(history: History, log: Iterable[Logged]) -> list[Finding]:
    """Return all broken promises; the log comes in reading order of each partition."""
    records = list(log)
    return [
        *check_offsets(records),
        *check_acks(history, records),
        *check_order(history, records),
    ]


def check_offsets(records: Sequence[Logged]) -> Iterable[Finding]:
    """Offsets run 0, 1, 2, ... in each partition, and each record is where it says it belongs."""
    due: dict[int, int] = {}
    for record in records:
        expected = due.get(record.partition, 0)
        place = f"partition {record.partition} offset {record.offset}"
        if record.offset != expected:
            yield Finding(Fault.GAP, f"{place}: {expected} was due")
        due[record.partition] = record.offset + 1
        if record.stamp is None or record.stamp.partition != record.partition:
            yield Finding(Fault.FOREIGN, f"{place}: {record.stamp}")


def check_acks(history: History, records: Sequence[Logged]) -> Iterable[Finding]:
    """Every acknowledged record is there, at the offset that was promised."""
    at = {(record.partition, record.offset): record.stamp for record in records}
    present = {record.stamp for record in records}
    for ack in history.acks:
        found = at.get((ack.stamp.partition, ack.offset))
        if found == ack.stamp:
            continue
        fault = Fault.MISPLACED if ack.stamp in present else Fault.LOST
        yield Finding(fault, f"{ack.stamp} was acknowledged at {ack.offset}, there is {found}")


def check_order(history: History, records: Sequence[Logged]) -> Iterable[Finding]:
    """An idempotent producer's records come once, in order and without holes."""
    following: dict[tuple[str, int], int] = {}
    seen: set[Stamp] = set()
    for record in records:
        stamp = record.stamp
        if stamp is None or stamp.producer not in history.idempotent:
            continue
        place = f"offset {record.offset}: {stamp}"
        if stamp in seen:
            yield Finding(Fault.DUPLICATE, place)
            continue
        seen.add(stamp)
        due = following.get((stamp.producer, stamp.partition), 0)
        if stamp.sequence < due:
            yield Finding(Fault.REORDERED, f"{place} after {due - 1}")
            continue
        for skipped in range(due, stamp.sequence):
            missing = Stamp(stamp.producer, stamp.partition, skipped)
            if missing not in history.failed:
                yield Finding(Fault.HOLE, f"{place}: {skipped} is missing before it")
        following[stamp.producer, stamp.partition] = stamp.sequence + 1
