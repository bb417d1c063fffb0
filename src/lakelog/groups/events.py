"""The events of groups, as records of the domain log carry them, and what they are answered. Pure.

An event holds everything that the machines may know: ids are minted, limits read, patterns resolved
and assignments computed by the broker that appends it (rule 9, K3, K7). It says what it was made
for (a generation, an epoch, a timer's number, a holder), and a stale one is refused. Times are
durations, or wall-clock readings that are stored and never compared (K2).

Outcomes are what the group machines answer to events: the only source of what clients hear. A join
or a sync waits, and is answered later from the state of its group (K1): `JoinAnswer`, `SyncAnswer`.
"""

from typing import TypeAlias

import msgspec

from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Corrupt

Owned: TypeAlias = tuple[tuple[bytes, tuple[int, ...]], ...]
"""Partitions by topic id, both ascending."""


class _Event(msgspec.Struct, frozen=True, array_like=True):
    group_id: str


class Join(_Event, frozen=True, array_like=True, tag=1):
    """A member of the classic protocol asks to join (or to join again).

    `is_new` says that the broker minted `member_id` for this member; an unknown id without it is
    refused (K3).
    """

    member_id: str
    is_new: bool
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    holder: int
    members_max: int
    initial_delay_ms: int


class Sync(_Event, frozen=True, array_like=True, tag=2):
    """A member asks for its assignment; the leader's brings everybody's.

    Large assignments come in parts, each an event of its own (K10): only the last one counts as
    the leader's word.
    """

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]
    is_last: bool = True
    attempt: int = 0
    part: int = 0


class Leave(_Event, frozen=True, array_like=True, tag=3):
    """Members go, by id, or by instance id with an empty member id."""

    members: tuple[tuple[str, str | None], ...]


class Expire(_Event, frozen=True, array_like=True, tag=4):
    """A member was silent for its session, says its holder of this epoch (K4)."""

    member_id: str
    holder_epoch: int


class Adopt(_Event, frozen=True, array_like=True, tag=5):
    """A member talks to another broker now, which watches its session from here on (K4)."""

    member_id: str
    holder: int


class TimerExpired(_Event, frozen=True, array_like=True, tag=6):
    """A timer of the group ran out; the first event about it counts (K2)."""

    kind: int
    subject: str
    number: int


class CommitOffsets(_Event, frozen=True, array_like=True, tag=7):
    """Committed offsets: topic id, partition, offset, leader epoch, metadata.

    `generation` is the classic generation or the member epoch, -1 for neither. `api_version`
    decides between codes that only newer clients know.
    """

    member_id: str
    instance_id: str | None
    generation: int
    api_version: int
    time_ms: int
    offsets: tuple[tuple[bytes, int, int, int, str], ...]


class DeleteOffsets(_Event, frozen=True, array_like=True, tag=8):
    """Forget committed offsets: topic id, topic name, partition (OffsetDelete).

    The name is what live members subscribe by: what they read stays.
    """

    partitions: tuple[tuple[bytes, str, int], ...]


class ExpireOffsets(_Event, frozen=True, array_like=True, tag=9):
    """Forget these offsets (topic id, topic name, partition) unless committed after `position`.

    The name is "" for a topic that is gone; topics that live members subscribe to stay. A group
    without members ceases to exist with its last offset (K2, K12).
    """

    partitions: tuple[tuple[bytes, str, int], ...]
    position: int


class DeleteGroup(_Event, frozen=True, array_like=True, tag=10):
    """Forget an empty group and its offsets."""


class ConsumerHeartbeat(_Event, frozen=True, array_like=True, tag=11):
    """A heartbeat of the consumer protocol (KIP-848); it is written only if it changes something.

    None and -1 mean "unchanged". A member epoch of 0 joins, -1 leaves, -2 leaves for a while. A
    broker that takes the member over from its holder names the holder's epoch: what was queued
    before the member went elsewhere is refused when it lands (K4).
    """

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    names: tuple[str, ...] | None
    pattern: str | None
    assignor: str | None
    owned: Owned | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    holder: int
    members_max: int
    holder_epoch: int = -1


class TargetAssignment(_Event, frozen=True, array_like=True, tag=12):
    """Who shall have what, computed for this group epoch by the group's owner (K7).

    `topics` are named once; a member's share is (place in `topics`, partitions). `fingerprint`
    stands for the topics and partition counts that it was computed from. `names` are the names of
    `topics`: who stopped reading one of them is not given it from a target of before.
    """

    epoch: int
    fingerprint: int
    assignor: str
    topics: tuple[bytes, ...]
    shares: tuple[tuple[str, tuple[tuple[int, tuple[int, ...]], ...]], ...]
    names: tuple[str, ...] = ()


class Resolved(_Event, frozen=True, array_like=True, tag=13):
    """The topics that a subscription pattern matches now (K7)."""

    pattern: str
    names: tuple[str, ...]


class TopicsChanged(_Event, frozen=True, array_like=True, tag=14):
    """The topics that the group reads are others than the ones its target was made from."""

    fingerprint: int


GroupEvent: TypeAlias = (
    Join
    | Sync
    | Leave
    | Expire
    | Adopt
    | TimerExpired
    | CommitOffsets
    | DeleteOffsets
    | ExpireOffsets
    | DeleteGroup
    | ConsumerHeartbeat
    | TargetAssignment
    | Resolved
    | TopicsChanged
)

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[GroupEvent] = msgspec.msgpack.Decoder(GroupEvent)


def encode_group_event(event: GroupEvent) -> bytes:
    """The event's bytes."""
    return _ENCODER.encode(event)


def decode_group_event(data: memoryview) -> GroupEvent:
    """The event; what cannot be understood is `Corrupt` and stops the domain (rule 11)."""
    try:
        event = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(f"a group event cannot be understood: {error}") from None
    if isinstance(event, TargetAssignment):
        _check_target(event)
    return event


def _check_target(event: TargetAssignment) -> None:
    """Rule 10: a share of a topic that the event does not name would fail in the middle."""
    places = [place for _, share in event.shares for place, _ in share]
    if places and not 0 <= min(places) <= max(places) < len(event.topics):
        raise Corrupt("a target gives away a topic that it does not name")


class GroupEventResult(msgspec.Struct, frozen=True):
    """An event was taken in (NONE), or refused with this code."""

    code: ErrorCode


class JoinResult(msgspec.Struct, frozen=True):
    """A Join was taken in: the member's answer comes from the group's state (K1), except for this.

    `leader` is the leader to name instead of the group's, for a static member that came back under
    a new id and must not assign anew (row 85).
    """

    code: ErrorCode
    member_id: str = ""
    leader: str | None = None
    skip_assignment: bool = False


class LeaveResult(msgspec.Struct, frozen=True):
    """What became of each member of a Leave; `member_ids` are the ones the members had."""

    codes: tuple[ErrorCode, ...]
    member_ids: tuple[str, ...] = ()


class ConsumerHeartbeatResult(msgspec.Struct, frozen=True):
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


GroupOutcome: TypeAlias = (
    GroupEventResult | JoinResult | LeaveResult | ConsumerHeartbeatResult | OffsetsDeleted
)


class JoinAnswer(msgspec.Struct, frozen=True):
    """The answer to a JoinGroup; `members` (id, instance id, metadata) only for the leader."""

    code: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class SyncAnswer(msgspec.Struct, frozen=True):
    """The answer to a SyncGroup."""

    code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
