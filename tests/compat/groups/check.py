"""What must hold for a group, as a pure check of its members' notes.

Every record was handed over at least once. A partition that comes to a member starts exactly at the
offset that was committed last. A commit that was acknowledged stays. No partition has two owners at
one time, and nobody commits for a partition that has gone to another.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from tests.compat.groups.notes import (
    Acked,
    Asked,
    Assigned,
    Failed,
    Left,
    Life,
    Read,
    Released,
    Trouble,
)

FOREVER_MS = 1 << 62


class Fault(Enum):
    """The kinds of broken promise."""

    SKIPPED = "skipped"
    BEYOND = "beyond the end"
    RESUMED_LATE = "resumed late"
    RESUMED_EARLY = "resumed early"
    COMMIT_LOST = "commit lost"
    NOT_AT_END = "not at the end"
    TWO_OWNERS = "two owners"
    STALE_COMMIT = "stale commit accepted"
    TROUBLE = "trouble"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise."""

    fault: Fault
    text: str


@dataclass(frozen=True, slots=True)
class Tenure:
    """One member's time with one partition: [start_ms, end_ms)."""

    member: str
    partition: int
    start_ms: int
    end_ms: int
    generation: int | None
    lost: bool


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of one partition; acked_ms is None while nobody knows what became of it."""

    member: str
    partition: int
    offset: int
    asked_ms: int
    acked_ms: int | None
    announced: bool = True


def check(
    lives: Sequence[Life],
    ends: Mapping[int, int],
    committed: Mapping[int, int],
    *,
    fenced: bool = False,
) -> list[Finding]:
    """Return all broken promises of a group whose members have read everything and left.

    With `fenced` a member may learn late that its partitions went to another, as after a pause that
    outlasts sessions: then only a shared generation or an accepted commit makes two owners.
    """
    return [
        *troubles(lives),
        *coverage(lives, ends),
        *resumptions(lives),
        *last_commits(lives, ends, committed),
        *two_owners(lives, fenced=fenced),
        *stale_commits(lives),
    ]


def troubles(lives: Iterable[Life]) -> Iterator[Finding]:
    """What members themselves found wrong."""
    for life in lives:
        for event in life.events:
            if isinstance(event, Trouble):
                yield Finding(Fault.TROUBLE, f"{life.name}: {event.text}")


def coverage(lives: Iterable[Life], ends: Mapping[int, int]) -> Iterator[Finding]:
    """The ranges that were handed over cover every partition, and go nowhere beyond."""
    ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for life in lives:
        for read in life.reads():
            ranges[read.partition].append((read.start, read.end))
    for partition, end in sorted(ends.items()):
        reached = 0
        for start, upto in sorted(ranges[partition]):
            if start > reached:
                yield Finding(Fault.SKIPPED, f"partition {partition}: [{reached}, {start})")
            reached = max(reached, upto)
        if reached < end:
            yield Finding(Fault.SKIPPED, f"partition {partition}: [{reached}, {end})")
        if reached > end:
            yield Finding(Fault.BEYOND, f"partition {partition}: {reached} of {end}")


def tenures(life: Life) -> list[Tenure]:
    """Return a life's times with its partitions."""
    found: list[Tenure] = []
    held: dict[int, Assigned] = {}

    def close(partitions: Iterable[int], end_ms: int, *, lost: bool) -> None:
        for partition in partitions:
            since = held.pop(partition, None)
            if since is not None:
                found.append(
                    Tenure(life.name, partition, since.at_ms, end_ms, since.generation, lost)
                )

    for event in life.events:
        match event:
            case Assigned():
                for partition in event.partitions:
                    held.setdefault(partition, event)
            case Released():
                close(event.partitions, event.at_ms, lost=event.lost)
            case Left():
                close(tuple(held), event.at_ms, lost=False)
            case _:
                pass
    close(tuple(held), FOREVER_MS if life.killed_ms is None else life.killed_ms, lost=False)
    return found


def all_tenures(lives: Iterable[Life]) -> dict[int, list[Tenure]]:
    """Return everybody's times with every partition."""
    found: dict[int, list[Tenure]] = defaultdict(list)
    for life in lives:
        for tenure in tenures(life):
            found[tenure.partition].append(tenure)
    return found


def commits(life: Life) -> list[Commit]:
    """Return a life's commits that took effect or may have."""
    acked = {event.token: event for event in life.events if isinstance(event, Acked)}
    refused = {event.token for event in life.events if isinstance(event, Failed) and event.certain}
    found = []
    for event in life.events:
        if isinstance(event, Asked) and event.token not in refused:
            answer = acked.get(event.token)
            for partition, offset in event.offsets.items():
                acked_ms = None if answer is None else answer.at_ms
                found.append(Commit(life.name, partition, offset, event.at_ms, acked_ms))
        elif isinstance(event, Acked) and event.token is None:
            for partition, offset in event.offsets.items():
                asked_ms = earliest_ms(life, partition, offset, event.at_ms)
                found.append(
                    Commit(life.name, partition, offset, asked_ms, event.at_ms, announced=False)
                )
    return found


def earliest_ms(life: Life, partition: int, offset: int, acked_ms: int) -> int:
    """Return when a commit in the background can have been sent at the earliest.

    The client tells of it later, when it is polled: perhaps after the partition has gone.
    """
    reads = (read for read in life.reads() if read.partition == partition and read.end >= offset)
    return next((read.at_ms for read in reads), acked_ms)


@dataclass(frozen=True, slots=True)
class Register:
    """What may have been committed for one partition, as all members together know it."""

    commits: Sequence[Commit]
    # (when, end of what was handed over) by members that commit in the background.
    background: Sequence[tuple[int, int]]

    def candidates(self, since_ms: int, until_ms: int) -> set[int]:
        """The offsets that a look in [since, until] may find; 0 stands for none."""
        asked = [commit for commit in self.commits if commit.asked_ms <= until_ms]
        settled = [each for each in asked if each.acked_ms is not None and each.acked_ms < since_ms]
        newest = max((commit.asked_ms for commit in settled), default=-1)
        found = {commit.offset for commit in asked if commit.asked_ms >= newest}
        return found if settled else {0, *found}

    def allows(self, offset: int, since_ms: int, until_ms: int) -> bool:
        """Whether a look in [since, until] may find this offset."""
        found = self.candidates(since_ms, until_ms)
        if offset in found:
            return True
        beyond = max((end for at_ms, end in self.background if at_ms <= until_ms), default=0)
        return min(found) <= offset <= beyond


def registers(lives: Iterable[Life]) -> dict[int, Register]:
    """Return what was committed, by partition."""
    by_partition: dict[int, list[Commit]] = defaultdict(list)
    background: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for life in lives:
        for commit in commits(life):
            by_partition[commit.partition].append(commit)
        if life.automatic:
            for read in life.reads():
                background[read.partition].append((read.at_ms, read.end))
    return {
        partition: Register(by_partition[partition], background[partition])
        for partition in {*by_partition, *background}
    }


def resumptions(lives: Sequence[Life]) -> Iterator[Finding]:
    """The first record that a member gets of a partition is the one that was committed last.

    A client that gets a partition back may also go on where it was, if nobody had it meanwhile.
    """
    known = registers(lives)
    held = all_tenures(lives)
    for life in lives:
        reached: dict[int, Read] = {}
        for since_ms, first in first_reads(life, reached):
            last = reached.get(first.partition)
            if last is not None and last.end == first.start:
                others = (each for each in held[first.partition] if each.member != life.name)
                if not any(last.at_ms < each.start_ms < first.at_ms for each in others):
                    continue
            register = known.get(first.partition, Register((), ()))
            yield from resumption(life.name, first, register, since_ms)


def first_reads(life: Life, reached: dict[int, Read]) -> Iterator[tuple[int, Read]]:
    """Yield each first read after an assignment with its time; `reached` has the read before it."""
    fresh: dict[int, int] = {}
    for event in life.events:
        match event:
            case Assigned():
                fresh |= dict.fromkeys(event.partitions, event.at_ms)
            case Released():
                fresh = {each: at for each, at in fresh.items() if each not in event.partitions}
            case Read():
                if event.partition in fresh:
                    yield fresh.pop(event.partition), event
                reached[event.partition] = event
            case _:
                pass


def resumption(name: str, read: Read, register: Register, since_ms: int) -> Iterator[Finding]:
    """Judge one first record."""
    if register.allows(read.start, since_ms, read.at_ms):
        return
    expected = register.candidates(since_ms, read.at_ms)
    late = read.start > max(expected)
    yield Finding(
        Fault.RESUMED_LATE if late else Fault.RESUMED_EARLY,
        f"{name}: partition {read.partition} began at {read.start}, committed was"
        f" {sorted(expected)[:5]} (assigned {since_ms}, read {read.at_ms})",
    )


def last_commits(
    lives: Sequence[Life], ends: Mapping[int, int], committed: Mapping[int, int]
) -> Iterator[Finding]:
    """What is committed in the end is what was acknowledged last, and that is the end."""
    known = registers(lives)
    for partition, end in sorted(ends.items()):
        found = committed.get(partition, 0)
        register = known.get(partition, Register((), ()))
        if not register.allows(found, FOREVER_MS, FOREVER_MS):
            expected = sorted(register.candidates(FOREVER_MS, FOREVER_MS))
            text = f"partition {partition}: {found} is committed, acknowledged was {expected}"
            yield Finding(Fault.COMMIT_LOST, text)
        if found != end:
            text = f"partition {partition}: {found} is committed, the end is {end}"
            yield Finding(Fault.NOT_AT_END, text)


def two_owners(lives: Sequence[Life], *, fenced: bool) -> Iterator[Finding]:
    """No partition is with two members at one time."""
    for partition, found in sorted(all_tenures(lives).items()):
        ordered = sorted(found, key=lambda tenure: (tenure.start_ms, tenure.end_ms))
        for at, earlier in enumerate(ordered):
            for later in ordered[at + 1 :]:
                if later.start_ms >= earlier.end_ms:
                    break
                if later.member != earlier.member and is_clash(earlier, later, fenced=fenced):
                    text = f"partition {partition}: {earlier} and {later}"
                    yield Finding(Fault.TWO_OWNERS, text)


def is_clash(earlier: Tenure, later: Tenure, *, fenced: bool) -> bool:
    """Whether two tenures that overlap break a promise."""
    if earlier.generation is not None and earlier.generation == later.generation:
        return True
    return not fenced and not earlier.lost


def stale_commits(lives: Sequence[Life]) -> Iterator[Finding]:
    """Nobody's commit is accepted after the partition went to another member."""
    held = all_tenures(lives)
    for life in lives:
        for commit in commits(life):
            if commit.acked_ms is None or not commit.announced:
                continue
            mine = [
                tenure.start_ms
                for tenure in held[commit.partition]
                if tenure.member == commit.member and tenure.start_ms <= commit.asked_ms
            ]
            since_ms = max(mine, default=-1)
            for tenure in held[commit.partition]:
                newer = tenure.member != commit.member and tenure.start_ms > since_ms
                if newer and covers(tenure, commit.asked_ms, commit.acked_ms):
                    yield Finding(Fault.STALE_COMMIT, f"{commit} while {tenure}")


def covers(tenure: Tenure, start_ms: int, end_ms: int) -> bool:
    """Whether a tenure began before and ended after."""
    return tenure.start_ms < start_ms and end_ms < tenure.end_ms


def handed_over(lives: Iterable[Life]) -> int:
    """Return how many records were handed over, repetitions included."""
    return sum(read.end - read.start for life in lives for read in life.reads())


def longest_gap_ms(life: Life, start_ms: int, end_ms: int) -> int:
    """Return a life's longest time in [start, end) without a record."""
    times = [read.at_ms for read in life.reads() if start_ms <= read.at_ms < end_ms]
    edges = [start_ms, *times, end_ms]
    return max(after - before for before, after in pairwise(edges))
