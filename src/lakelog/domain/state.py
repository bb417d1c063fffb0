"""The state of a domain, and what `apply` answers to each event (rule 6). Pure.

The tables are packed and changed in place, because a copy a record would cost more than the
record; only `machine.apply` changes them. Everything that `apply` may know is in here (rule 9).
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from lakelog.domain.envelope import DomainRecord, Stamp
from lakelog.groups.events import GroupOutcome
from lakelog.groups.parts import PendingParts
from lakelog.groups.table import GroupTable
from lakelog.streams.index import Index
from lakelog.streams.objects import ObjectTable
from lakelog.streams.producers import ProducerTable
from lakelog.streams.table import NONE, Int64s, StreamTable


class Verdict(IntEnum):
    """What became of one batch of a Commit."""

    ACCEPTED = 0
    DUPLICATE = 1
    UNKNOWN_STREAM = 2
    OUT_OF_SEQUENCE = 3
    STALE_EPOCH = 4
    PRODUCERS_FULL = 5
    VOID = 6


@dataclass(frozen=True, slots=True)
class Committed:
    """Per batch of a Commit, in its order: the verdict and where the batch is.

    A duplicate has the offset and the timestamp of the original (D2); a refused batch has -1.
    """

    verdicts: npt.NDArray[np.int8]
    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]


class WriteVerdict(IntEnum):
    """What became of a Write, whole."""

    TAKEN = 0
    ALREADY = 1
    UNKNOWN_STREAM = 2
    VOID = 3
    APPLICATIONS_FULL = 4
    TOO_EARLY = 5


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a Write: taken in, there before, or refused, always as a whole (X2).

    `commits` has one element for each Commit of a Write that was taken in; `unknown` names the
    streams that are missing.
    """

    verdict: WriteVerdict
    commits: tuple[Committed, ...] = ()
    unknown: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Per stream of a Trim: its log start now, -1 for a stream that is unknown."""

    log_starts: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Swapped:
    """Whether a Swap took place; if not, the index had moved on and the reason says how."""

    accepted: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GroupApplied:
    """What became of a group's event."""

    outcome: GroupOutcome


@dataclass(frozen=True, slots=True)
class Done:
    """The event took effect, or had already."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """The record's stamp was not newer than its writer's last: it has no effect (rule 3)."""


Outcome: TypeAlias = Committed | Written | Trimmed | Swapped | GroupApplied | Done | Ignored


@dataclass(frozen=True, slots=True)
class Applied:
    """A record and the outcome of each of its events."""

    position: int
    record: DomainRecord
    outcomes: tuple[Outcome, ...]


LEVEL_MAX: Final = 3
"""The newest behaviour of `apply` that this version knows (rule 12).

1: everything but what follows. 2: Write and ExpireWrites. 3: events of groups in parts, and room
for more producers.
"""

PRODUCERS_LEVEL: Final = 3
"""The level from which on `PRODUCERS_MAX` holds."""

PRODUCERS_MAX: Final = 8_000_000
"""Rows of producers in a domain; part of what `apply` means. This is the last resort, at some 3 GB:
what brokers let in is bounded by what operators allow, in bytes (`log.producer_bytes_max`)."""

PRODUCERS_MAX_BEFORE: Final = 200_000
"""The same below that level."""

APPLICATIONS_MAX: Final = 50_000
"""Applications whose last version is kept in a domain; part of what `apply` means at level 2."""


class LastWrite(NamedTuple):
    """The newest version of an application, and the time of the newest WAL id in it."""

    version: int
    time_ms: int


class DomainState:
    """Everything that is known of one domain after `position` records."""

    __slots__ = (
        "cluster_id",
        "domain",
        "groups",
        "horizon_ms",
        "index",
        "level",
        "objects",
        "parts",
        "position",
        "producers",
        "streams",
        "supported",
        "writers",
        "writes",
    )

    def __init__(self) -> None:
        self.cluster_id = ""
        self.domain = 0
        self.level = 0
        self.position = 0
        self.horizon_ms = 0
        self.writers: dict[str, Stamp] = {}
        self.supported: dict[str, int] = {}
        self.streams = StreamTable()
        self.index = Index()
        self.objects = ObjectTable()
        self.producers = ProducerTable()
        self.groups = GroupTable()
        self.writes: dict[str, LastWrite] = {}
        self.parts: dict[str, PendingParts] = {}
        """By writer: the event of a group of which some parts are there."""

    @property
    def producers_max(self) -> int:
        """How many rows of producers the domain's level has room for."""
        return PRODUCERS_MAX if self.level >= PRODUCERS_LEVEL else PRODUCERS_MAX_BEFORE

    def index_bytes(self) -> int:
        """What the index and the objects it names take in memory."""
        return self.index.held_bytes() + self.objects.held_bytes()

    def frozen(self) -> "DomainState":
        """A copy that later records do not change: what a checkpoint is written from."""
        made = DomainState()
        made.cluster_id = self.cluster_id
        made.domain = self.domain
        made.level = self.level
        made.position = self.position
        made.horizon_ms = self.horizon_ms
        made.writers = dict(self.writers)
        made.supported = dict(self.supported)
        made.streams = self.streams.copied()
        made.index = self.index.copied()
        made.objects = self.objects.copied()
        made.producers = self.producers.copied()
        made.groups = self.groups.copied()
        made.writes = dict(self.writes)
        made.parts = dict(self.parts)
        return made

    def is_sparse(self) -> bool:
        """Whether some table is mostly what was dropped, trimmed or forgotten."""
        return self.index.is_sparse() or self.streams.is_sparse() or self.producers.is_sparse()

    def pack(self) -> None:
        """Give back the room of dropped streams, entries, objects and producers.

        The meaning stays the same: row numbers are nobody's business outside these tables.
        """
        object_rows = self.index.referenced()
        kept_streams = self.streams.pack()
        new_stream_rows = _renumbered(kept_streams.astype(np.int64))
        new_object_rows = _renumbered(object_rows)
        self.objects.pack(object_rows)
        kept_producers = self.producers.renumber(new_stream_rows)
        new_producer_rows = _renumbered(kept_producers.astype(np.int64))
        last = self.streams.columns["producer"]
        has_last = last != NONE
        last[has_last] = new_producer_rows[last[has_last]]
        self.index.pack(self.streams, new_stream_rows, new_object_rows)


def _renumbered(kept: Int64s) -> Int64s:
    """From old row numbers to new ones; rows that were not kept map to NONE."""
    mapping = np.full(int(kept.max()) + 1 if len(kept) else 0, NONE, dtype=np.int64)
    mapping[kept] = np.arange(len(kept), dtype=np.int64)
    return mapping
