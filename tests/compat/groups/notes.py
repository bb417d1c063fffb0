"""What a member of a group notes about itself, one line an event, and how it is read back.

A member writes `<wall clock in ms> <kind> <fields>` and lets the line reach the file before it goes
on, so that a killed member leaves everything that it knew:

    assigned GENERATION PARTITIONS      generation - where the client does not tell it
    revoked PARTITIONS | lost PARTITIONS
    read PARTITION START END            records [START, END) were handed over
    asked TOKEN PARTITION:OFFSET,...    a commit is about to be sent
    acked TOKEN PARTITION:OFFSET,...    it was acknowledged; token - for one that the client made
    refused TOKEN REASON                it was refused, and has no effect
    unknown TOKEN REASON                nobody knows
    fault TEXT                          something that must not be
    left                                the member went in good order
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Assigned:
    """Partitions came to the member; the generation is None where the client hides it."""

    at_ms: int
    generation: int | None
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """Partitions went from the member; lost means that it was not asked."""

    at_ms: int
    partitions: tuple[int, ...]
    lost: bool


@dataclass(frozen=True, slots=True)
class Read:
    """Records [start, end) of a partition were handed over."""

    at_ms: int
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A commit is about to be sent."""

    at_ms: int
    token: int
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Acked:
    """A commit was acknowledged; token None for one that the client made by itself."""

    at_ms: int
    token: int | None
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Failed:
    """A commit failed; certain means that it surely has no effect."""

    at_ms: int
    token: int
    reason: str
    certain: bool


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that must not be."""

    at_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class Left:
    """The member went in good order."""

    at_ms: int


Event = Assigned | Released | Read | Asked | Acked | Failed | Trouble | Left


@dataclass(frozen=True, slots=True)
class Life:
    """One process of a member, from its start to its end."""

    name: str
    events: Sequence[Event]
    killed_ms: int | None = None
    # Commits in the background are not announced, only acknowledged.
    automatic: bool = False

    def reads(self) -> Iterator[Read]:
        """What was handed over, in order."""
        return (event for event in self.events if isinstance(event, Read))


def parse_numbers(text: str) -> tuple[int, ...]:
    """Return `1,2,3` as numbers."""
    return () if text == NOTHING else tuple(int(part) for part in text.split(","))


def parse_offsets(text: str) -> dict[int, int]:
    """Return `partition:offset,...` as a mapping."""
    pairs = () if text == NOTHING else (part.split(":") for part in text.split(","))
    return {int(partition): int(offset) for partition, offset in pairs}


def parse_commit(at_ms: int, kind: str, rest: str) -> Event:
    """Return the event of a line about a commit."""
    token, _, said = rest.partition(" ")
    match kind:
        case "asked":
            return Asked(at_ms, int(token), parse_offsets(said))
        case "acked":
            return Acked(at_ms, None if token == NOTHING else int(token), parse_offsets(said))
        case "refused" | "unknown":
            return Failed(at_ms, int(token), said, kind == "refused")
        case _:
            return Trouble(at_ms, f"a note that makes no sense: {kind} {rest}")


def parse_line(line: str) -> Event:
    """Return the event of one line."""
    stamp, kind, rest = (*line.split(" ", 2), "")[:3]
    at_ms = int(stamp)
    match kind:
        case "assigned":
            generation, partitions = rest.split(" ")
            known = None if generation == NOTHING else int(generation)
            return Assigned(at_ms, known, parse_numbers(partitions))
        case "revoked" | "lost":
            return Released(at_ms, parse_numbers(rest), kind == "lost")
        case "read":
            partition, start, end = rest.split(" ")
            return Read(at_ms, int(partition), int(start), int(end))
        case "fault":
            return Trouble(at_ms, rest)
        case "left":
            return Left(at_ms)
        case _:
            return parse_commit(at_ms, kind, rest)


def parse_notes(text: str) -> list[Event]:
    """Return all events; a last line that is still growing is left out."""
    return [parse_line(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def load_events(path: Path) -> list[Event]:
    """Return the events of a file; none if the member has not come that far."""
    return parse_notes(path.read_text()) if path.exists() else []


def show_numbers(numbers: Iterable[int]) -> str:
    """Return numbers as a member notes them."""
    return ",".join(map(str, sorted(numbers))) or NOTHING


def show_offsets(offsets: Mapping[int, int]) -> str:
    """Return offsets as a member notes them."""
    return ",".join(f"{each}:{offsets[each]}" for each in sorted(offsets)) or NOTHING
