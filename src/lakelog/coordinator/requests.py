"""What clients ask of groups, and the checks that need our options or no group at all. Pure.

A check looks at nothing but the request: what depends on the group is judged by its machine, inside
the log. The order of the checks is Kafka's, because clients see the first that fails.
"""

import base64
import uuid
from functools import lru_cache
from typing import Final

import msgspec

from lakelog.coordinator.options import GroupOptions
from lakelog.groups.consumer_target import PatternError, compile_pattern
from lakelog.groups.events import ConsumerHeartbeat, ConsumerHeartbeatResult, Join, Owned
from lakelog.groups.state import GroupSettings
from lakelog.model.errors import ErrorCode

MEMBER_ID_REQUIRED_SINCE: Final = 4
"""From this version of JoinGroup on a member gets its id before it joins (KIP-394)."""

OWN_ID_SINCE: Final = 1
"""From this version of ConsumerGroupHeartbeat on members bring their id (KIP-1082)."""

JOINS: Final = 0
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2
UNCHANGED: Final = -1
"""What a time-out says that is not told again."""


class JoinRequest(msgspec.Struct, frozen=True):
    """A JoinGroup; `rebalance_timeout_ms` is -1 where the version has none."""

    group_id: str
    member_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    api_version: int
    client_id: str
    client_host: str


class SyncRequest(msgspec.Struct, frozen=True):
    """A SyncGroup; the leader's has the assignments of all members."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]
    api_version: int
    client_id: str
    client_host: str


class ConsumerHeartbeatRequest(msgspec.Struct, frozen=True):
    """A ConsumerGroupHeartbeat; None and -1 mean "as before"."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    names: tuple[str, ...] | None
    pattern: str | None
    assignor: str | None
    owned: Owned | None
    api_version: int
    client_id: str
    client_host: str


def check_join(request: JoinRequest, options: GroupOptions) -> ErrorCode:
    """What is wrong with a JoinGroup, whatever its group is like."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    least, most = options.session_timeout_min_ms, options.session_timeout_max_ms
    if not least <= request.session_timeout_ms <= most:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def needs_id_first(request: JoinRequest) -> bool:
    """Whether this member must be sent away with an id (KIP-394); static members need not."""
    return (
        not request.member_id
        and request.instance_id is None
        and request.api_version >= MEMBER_ID_REQUIRED_SINCE
    )


def join_event(
    request: JoinRequest, *, member_id: str, is_new: bool, holder: int, options: GroupOptions
) -> Join:
    """The event of a JoinGroup."""
    rebalance_ms = request.rebalance_timeout_ms
    return Join(
        group_id=request.group_id,
        member_id=member_id,
        is_new=is_new,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        # Version 0 knows one time-out for both (KIP-62).
        rebalance_timeout_ms=rebalance_ms if rebalance_ms >= 0 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=request.protocols,
        holder=holder,
        members_max=options.members_max,
        initial_delay_ms=options.initial_rebalance_delay_ms,
    )


def check_beat(
    request: ConsumerHeartbeatRequest, options: GroupOptions
) -> ConsumerHeartbeatResult | None:
    """What is wrong with a ConsumerGroupHeartbeat, whatever its group is like."""
    reason = _malformed(request)
    if reason is not None:
        return ConsumerHeartbeatResult(ErrorCode.INVALID_REQUEST, reason)
    if request.assignor is not None and request.assignor not in options.consumer_assignors:
        offered = ", ".join(options.consumer_assignors)
        text = f"Assignor {request.assignor} is not on offer. There are: {offered}."
        return ConsumerHeartbeatResult(ErrorCode.UNSUPPORTED_ASSIGNOR, text)
    trouble = _pattern_trouble(request.pattern) if request.pattern else None
    if trouble is not None:
        text = f"The pattern {request.pattern!r} cannot be used: {trouble}."
        return ConsumerHeartbeatResult(ErrorCode.INVALID_REGULAR_EXPRESSION, text)
    return None


@lru_cache(maxsize=256)
def _pattern_trouble(pattern: str) -> str | None:
    """What is wrong with a pattern; kept, because clients repeat theirs and compiling is slow."""
    try:
        compile_pattern(pattern)
    except PatternError as reason:
        return str(reason)
    return None


def _malformed(request: ConsumerHeartbeatRequest) -> str | None:
    for text, name in (
        (request.group_id, "group id"),
        (request.instance_id, "instance id"),
        (request.rack_id, "rack id"),
    ):
        if text is not None and not text.strip():
            return f"The {name} is empty."
    if request.member_epoch < LEAVES_FOR_A_WHILE:
        return f"There is no member epoch {request.member_epoch}."
    mints = request.member_epoch == JOINS and request.api_version < OWN_ID_SINCE
    if not request.member_id and not mints:
        return "The member id is empty."
    if request.member_epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        return "Only a static member leaves for a while, and this one has no instance id."
    return _malformed_join(request) if request.member_epoch == JOINS else None


def _malformed_join(request: ConsumerHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == UNCHANGED:
        return "A member that joins has to say its rebalance time-out."
    if request.owned is None or request.owned:
        return "A member that joins has no partitions yet, and has to say so."
    if request.names is None and request.pattern is None:
        return "A member that joins has to say what it reads: topic names or a pattern."
    return None


def beat_event(
    request: ConsumerHeartbeatRequest,
    *,
    member_id: str,
    holder: int,
    members_max: int,
    settings: GroupSettings,
) -> ConsumerHeartbeat:
    """The event of a ConsumerGroupHeartbeat; subscriptions and partitions in their one order."""
    return ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=_timeout_ms(request),
        names=None if request.names is None else tuple(sorted(set(request.names))),
        pattern=request.pattern,
        assignor=request.assignor,
        owned=None if request.owned is None else _ordered(request.owned),
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=settings.session_timeout_ms,
        holder=holder,
        members_max=members_max,
    )


def _timeout_ms(request: ConsumerHeartbeatRequest) -> int:
    """The rebalance time-out; one below the mark for "unchanged" is no time at all, as in Kafka."""
    is_time = request.rebalance_timeout_ms >= UNCHANGED
    return request.rebalance_timeout_ms if is_time else 0


def _ordered(owned: Owned) -> Owned:
    merged: dict[bytes, set[int]] = {}
    for topic, partitions in owned:
        merged.setdefault(topic, set()).update(partitions)
    return tuple((topic, tuple(sorted(merged[topic]))) for topic in sorted(merged))


def minted_classic(token: bytes, request: JoinRequest) -> str:
    """A member id as Kafka makes them: the instance or client, and 16 bytes of chance."""
    prefix = request.client_id if request.instance_id is None else request.instance_id
    return f"{prefix}-{uuid.UUID(bytes=token, version=4)}"


def minted_consumer(token: bytes) -> str:
    """A member id for a consumer group, out of 16 bytes of chance."""
    return base64.urlsafe_b64encode(token).decode().rstrip("=")
