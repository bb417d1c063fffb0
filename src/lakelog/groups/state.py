"""What is known of groups: members, generations, targets, and what is chosen for one. Pure values.

A group is replaced, never changed: `dict` fields are copied before they are written. Their order is
the order in which members came, the same in every replica and in every checkpoint (rule 13).
Nothing in here is a time of day: durations run on the clocks of brokers (K2).
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import msgspec


class ClassicState(IntEnum):
    """Where a group of the classic protocol stands."""

    EMPTY = 0
    PREPARING = 1
    COMPLETING = 2
    STABLE = 3


class ClassicMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of a classic group.

    `is_joined` says that it has asked to be in the generation that is being prepared; once a
    generation takes it in, its parked join is answered. `is_synced` says that it has asked for its
    assignment in this generation. `is_new` holds until its first generation.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    holder: int
    holder_epoch: int
    assignment: bytes = b""
    is_joined: bool = False
    is_synced: bool = False
    is_new: bool = True


class ClassicGroup(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A group of the classic protocol, or one that has only offsets (protocol type "").

    `join_number` grows whenever the time to wait for joins begins anew; with the generation it
    names the group's timers. `initial_left_ms` is what the initial delay may still be extended by,
    -1 outside of it. `has_grown` says that a member came since the delay began. `timeout_ms` is
    how long the present timer runs, fixed when it began.

    What is counted and looked up at each event is kept beside the members: how many have joined,
    how many did not sync yet (0 outside of a generation), how many support each protocol, and
    which member an instance id stands for. `attempt` and `parts` are of the leader's Sync that is
    coming in, the parts taken in so far.
    """

    group_id: str
    state: ClassicState = ClassicState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, ClassicMember] = {}
    join_number: int = 0
    initial_delay_ms: int = 0
    initial_left_ms: int = -1
    has_grown: bool = False
    timeout_ms: int = 0
    joined_count: int = 0
    unsynced_count: int = 0
    support: dict[str, int] = {}
    instances: dict[str, str] = {}
    attempt: int = 0
    parts: int = 0


class MemberState(IntEnum):
    """Where a member of a consumer group stands on its way to the target."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


Shares: TypeAlias = dict[bytes, dict[int, int]]
"""By topic id: partition -> the member epoch at which the member got it (KIP-1251)."""


class ConsumerMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of a consumer group (KIP-848)."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    names: tuple[str, ...]
    pattern: str
    assignor: str | None
    holder: int
    holder_epoch: int
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Shares = {}
    revoking: Shares = {}
    is_away: bool = False
    """A static member that left for a while (-2): its assignment waits for its successor."""
    revoke_number: int = 0
    """Names the revocation that is under way, and so its timer; never the same one twice."""


class ConsumerGroup(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A group of the consumer protocol.

    `target` holds each member's share for `target_epoch`; `owners` says which member has a
    partition, assigned or still to be revoked, so that none is given to two (P1). A group begins
    with an empty target of epoch 1: a member that comes has to be answered an epoch above 0 before
    there is a target that counts it.
    """

    group_id: str
    epoch: int = 1
    target_epoch: int = 1
    fingerprint: int = 0
    assignor: str = ""
    members: dict[str, ConsumerMember] = {}
    target: dict[str, dict[bytes, tuple[int, ...]]] = {}
    resolved: dict[str, tuple[str, ...]] = {}
    owners: dict[bytes, dict[int, str]] = {}
    topic_names: dict[bytes, str] = {}
    """The names of the target's topics, as its maker knew them."""


Group: TypeAlias = ClassicGroup | ConsumerGroup
Member: TypeAlias = ClassicMember | ConsumerMember


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A committed offset, when it was committed, and by which record of the domain log."""

    offset: int
    leader_epoch: int
    metadata: str
    time_ms: int
    position: int


class TimerKind(IntEnum):
    """What a timer of a group waits for."""

    JOIN = 0  # members to join again, or the initial delay
    SYNC = 1  # members to ask for their assignments
    REVOKE = 2  # a member to let go of partitions


class Timer(msgspec.Struct, frozen=True):
    """A duration that runs from the moment a broker first sees this timer (K2)."""

    kind: TimerKind
    subject: str  # the member, "" for the group
    number: int
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The times of a consumer group that are in effect."""

    session_timeout_ms: int
    """How long a member may be silent."""

    heartbeat_interval_ms: int
    """How often members are told to say something."""

    assignment_interval_ms: int
    """The group gets a new target at most this often."""
