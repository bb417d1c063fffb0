"""What `apply` answers to each event: the only source of what clients hear (rule 6). Pure."""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lakelog.domain.envelope import DomainRecord
from lakelog.groups.events import GroupOutcome


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
