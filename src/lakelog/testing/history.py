"""What clients did and heard, for the checks of `lakelog.testing.invariants`.

A history is written by the clients themselves, whichever they are: simulated ones, or real ones of
a process test. Values are unique: a value says which send it came from.
"""

from dataclasses import dataclass, field
from enum import Enum


class Ending(Enum):
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
    ending: Ending
    base_offset: int = -1
    once: bool = True
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Seen:
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
    seen: list[Seen] = field(default_factory=list)
    final: dict[int, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    """Per stream, all that a fresh client reads at the end, from the log start to the head."""
    log_starts: dict[int, int] = field(default_factory=dict)
    """Per stream of `final`, its log start."""
