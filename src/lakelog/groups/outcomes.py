"""What the group machines answer to events: the only source of what clients hear. Pure."""

from typing import TypeAlias

import msgspec

from lakelog.groups.events import Owned
from lakelog.model.errors import ErrorCode


class Judged(msgspec.Struct, frozen=True):
    """An event was taken in (NONE), or refused with this code."""

    code: ErrorCode


class Joined(msgspec.Struct, frozen=True):
    """A Join was taken in: the member's answer comes from the group's state (K1), except for this.

    `leader` is the leader to name instead of the group's, for a static member that came back under
    a new id and must not assign anew (row 85).
    """

    code: ErrorCode
    member_id: str = ""
    leader: str | None = None
    skip_assignment: bool = False


class Left(msgspec.Struct, frozen=True):
    """What became of each member of a Leave; `member_ids` are the ones the members had."""

    codes: tuple[ErrorCode, ...]
    member_ids: tuple[str, ...] = ()


class Beaten(msgspec.Struct, frozen=True):
    """The answer to a heartbeat of the consumer protocol; `assignment` None means unchanged."""

    code: ErrorCode
    reason: str | None = None
    member_id: str = ""
    epoch: int = 0
    assignment: Owned | None = None


class OffsetsDeleted(msgspec.Struct, frozen=True):
    """What became of each partition of a DeleteOffsets, or of all of it."""

    code: ErrorCode
    codes: tuple[ErrorCode, ...] = ()


GroupOutcome: TypeAlias = Judged | Joined | Left | Beaten | OffsetsDeleted
