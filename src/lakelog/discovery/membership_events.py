"""What happens to a member, what it does about it, and what it tells its owner. Pure.

`lakelog.discovery.membership` takes the events and gives the effects; the shell around it does the
effects in their order and turns what comes of them into events.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lakelog.discovery.failures import DiscoveryError
from lakelog.discovery.node import (
    NodeInfo,
    NodeMetadata,
    NodeState,
    PartitionCountChanged,
    TopicPartition,
)
from lakelog.discovery.roster import RawMember

# Events.


@dataclass(frozen=True, slots=True)
class StartRequested:
    """The owner wants to be a member."""


@dataclass(frozen=True, slots=True)
class JoinAnswered:
    """JoinGroup was answered; `members` only for the leader."""

    code: int
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    """The leader's member id."""
    skip_assignment: bool = False
    members: tuple[RawMember, ...] = ()


@dataclass(frozen=True, slots=True)
class CountsRead:
    """The partition counts of topics were read: for the leader's plan, or because it was time."""

    counts: Mapping[str, int]
    """A topic that does not exist is left out."""


@dataclass(frozen=True, slots=True)
class SyncAnswered:
    """SyncGroup was answered."""

    code: int
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class DescribeAnswered:
    """DescribeGroups was answered."""

    code: int
    group_state: str = ""
    members: tuple[RawMember, ...] = ()


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """Heartbeat was answered."""

    code: int


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """The coordinator was not found, its connection broke, or it did not answer in time."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """For a whole session timeout nothing was heard from the coordinator: it has given us up."""


@dataclass(frozen=True, slots=True)
class RevocationDone:
    """The owner has let go of what `PartitionsRevoked` with this number named."""

    number: int


@dataclass(frozen=True, slots=True)
class CallbackOverdue:
    """A callback has run for longer than max_poll_interval."""


@dataclass(frozen=True, slots=True)
class CallbackReturned:
    """The callback that was overdue has returned."""


@dataclass(frozen=True, slots=True)
class Announce:
    """The owner says something new about the node."""

    metadata: NodeMetadata
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The owner wants to leave."""


@dataclass(frozen=True, slots=True)
class LeaveAnswered:
    """LeaveGroup was answered, or nobody was there to answer it."""


Event = (
    StartRequested
    | JoinAnswered
    | CountsRead
    | SyncAnswered
    | DescribeAnswered
    | HeartbeatAnswered
    | CoordinatorLost
    | SessionExpired
    | RevocationDone
    | CallbackOverdue
    | CallbackReturned
    | Announce
    | StopRequested
    | LeaveAnswered
)

# What the owner is told.


@dataclass(frozen=True, slots=True)
class StateChanged:
    """This node stands differently in the group."""

    state: NodeState


@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    """These partitions are this node's from now on."""

    partitions: tuple[TopicPartition, ...]
    generation: int


@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    """These partitions go to others: let go of them, then say `RevocationDone` with the number."""

    partitions: tuple[TopicPartition, ...]
    number: int


@dataclass(frozen=True, slots=True)
class PartitionsLost:
    """These partitions may be another node's already: stop at once, there is nothing to say."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """The members, or what is known of one, are others than at the last `MembersChanged`."""

    nodes: tuple[NodeInfo, ...]


@dataclass(frozen=True, slots=True)
class Reported:
    """Something went wrong that heals by itself."""

    failure: DiscoveryError


Change = (
    StateChanged
    | PartitionsAssigned
    | PartitionsRevoked
    | PartitionsLost
    | MembersChanged
    | PartitionCountChanged
    | Reported
)

# What the shell is to do.


@dataclass(frozen=True, slots=True)
class SendJoin:
    """Send JoinGroup with this subscription; wait first, longer for a higher attempt (0: not)."""

    member_id: str
    metadata: bytes
    attempt: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReadCounts:
    """Read the partition counts of these topics, freshly, and say `CountsRead`."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SendSync:
    """Send SyncGroup; only the leader has assignments, by member id."""

    member_id: str
    generation: int
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SendDescribe:
    """Send DescribeGroups; wait first, longer for a higher attempt (0: not)."""

    attempt: int = 0


@dataclass(frozen=True, slots=True)
class SendLeave:
    """Send LeaveGroup once, whatever comes of it, and say `LeaveAnswered`."""

    member_id: str


@dataclass(frozen=True, slots=True)
class ForgetCoordinator:
    """Look for the coordinator again before the next request."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Tell the owner."""

    change: Change


@dataclass(frozen=True, slots=True)
class Fail:
    """The membership has ended: tell whoever waits."""

    failure: DiscoveryError


Effect = (
    SendJoin | ReadCounts | SendSync | SendDescribe | SendLeave | ForgetCoordinator | Publish | Fail
)
