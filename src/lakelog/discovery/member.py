"""What a member knows, and the moves that several events have in common. Pure.

It knows where it is in the protocol, what it holds and who the others are. The moves are joining,
losing, letting go and leaving; each returns a new member and what is to be done.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from lakelog.discovery.assignor import by_topic
from lakelog.discovery.config import KafkaDiscoveryConfig
from lakelog.discovery.failures import (
    DiscoveryError,
    Fenced,
    GroupRefused,
    PollTimeoutExceeded,
    SecurityError,
)
from lakelog.discovery.membership_events import (
    Announce,
    Effect,
    Fail,
    ForgetCoordinator,
    PartitionsLost,
    PartitionsRevoked,
    Publish,
    Reported,
    SendJoin,
    SendLeave,
    StateChanged,
)
from lakelog.discovery.node import (
    NodeId,
    NodeInfo,
    NodeState,
    PartitionIds,
    TopicPartition,
    check_metadata,
)
from lakelog.discovery.roster import AssignmentFacts, RawMember, digest, encode_node
from lakelog.model.errors import ErrorCode
from lakelog.wire.codec import ConsumerSubscription, encode_subscription

DESCRIBES_MAX: Final = 5
"""How often the list of members is read for one generation before it counts with another hash."""


class Phase(Enum):
    """Where a member is in the group protocol."""

    OUTSIDE = auto()
    JOINING = auto()
    """JoinGroup is sent, or will be."""
    SYNCING = auto()
    """It is in a generation and waits for its assignment; the leader makes it."""
    SETTLED = auto()
    OVERDUE = auto()
    """It has left because a callback does not return, and joins when it does."""
    LEAVING = auto()
    GONE = auto()


@dataclass(frozen=True, slots=True)
class Member:
    """This node's membership; every step makes a new one."""

    group_id: str
    topics: tuple[str, ...]
    node: NodeInfo
    user_data: bytes
    """What it announces: `node`, encoded."""
    phase: Phase = Phase.OUTSIDE
    state: NodeState = NodeState.JOINING
    member_id: str = ""
    leader_id: str = ""
    """The leader's member id."""
    generation: int = -1
    """The generation in which it got what it holds."""
    joining_generation: int = -1
    """The generation whose assignment it waits for, or has."""
    held: tuple[TopicPartition, ...] = ()
    releasing: tuple[PartitionsRevoked, ...] = ()
    """What the owner was told to let go of and has not yet."""
    revocations: int = 0
    claimed: tuple[TopicPartition, ...] = ()
    """What it said it holds when it joined last."""
    candidates: tuple[RawMember, ...] = ()
    """The members, while the leader waits for the partition counts to make its plan."""
    facts: AssignmentFacts | None = None
    ids: PartitionIds = PartitionIds()  # noqa: RUF009 - frozen, so one for all is as good
    nodes: tuple[NodeInfo, ...] = ()
    """All members as last published."""
    is_listed: bool = False
    """Whether `nodes` is of this generation."""
    attempts: int = 0
    """Failures since the last assignment."""
    describes: int = 0
    nudged: bytes = b""
    """The digest of what was announced when another plan was asked for."""
    trouble: str = ""
    """What went wrong last, for whoever waits and wants to know why."""

    @property
    def beats(self) -> bool:
        """Whether the coordinator expects heartbeats."""
        return self.phase in (Phase.SETTLED, Phase.LEAVING)

    @property
    def is_leader(self) -> bool:
        """Whether this member makes the plan of its generation."""
        return bool(self.member_id) and self.member_id == self.leader_id

    @property
    def leader(self) -> NodeId | None:
        """The node that made the last assignment."""
        return NodeId(self.facts.leader) if self.facts is not None and self.facts.leader else None

    @property
    def settled_state(self) -> NodeState:
        """How the node stands while it is a member in good order."""
        is_draining = self.node.state is NodeState.DRAINING
        return NodeState.DRAINING if is_draining else NodeState.ACTIVE

    @property
    def peers(self) -> tuple[NodeInfo, ...]:
        """The other members as last published."""
        return tuple(node for node in self.nodes if node.node_id != self.node.node_id)

    @property
    def assigned_partitions(self) -> tuple[int, ...]:
        """The global ids of what it holds."""
        return self.ids.ids_of(self.held)

    @property
    def claims(self) -> tuple[TopicPartition, ...]:
        """All that its owner may still work on."""
        releasing = (partition for each in self.releasing for partition in each.partitions)
        return tuple(sorted({*self.held, *releasing}))

    def subscription(self) -> bytes:
        """The metadata of its JoinGroup, with what it claims."""
        return encode_subscription(
            ConsumerSubscription(
                topics=self.topics,
                user_data=self.user_data,
                owned_partitions=by_topic(self.claims),
                generation_id=self.generation,
                rack_id=self.node.metadata.failure_domain,
            )
        )


def make_member(config: KafkaDiscoveryConfig) -> Member:
    """The member that this configuration describes, outside the group; raises ConfigError."""
    config.validate()
    return Member(
        group_id=config.group_id,
        topics=tuple(config.topics),
        node=config.node,
        user_data=encode_node(config.node),
    )


Step = tuple[Member, tuple[Effect, ...]]
"""What a member becomes, and what is to be done, in order."""

_FORBIDDEN: Final = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user may not read the group (READ on GROUP)",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user may not see the topics (DESCRIBE on TOPIC)",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the cluster forbids it to this user",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "the cluster refuses the credentials",
}
_REFUSALS: Final = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "its members share partitions in another way; discovery needs a group of its own"
    ),
    ErrorCode.INVALID_GROUP_ID: "the group id is not legal",
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "the broker does not allow this session_timeout (group.min.session.timeout.ms and"
        " group.max.session.timeout.ms)"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: "it is full (group.max.size)",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not speak this protocol",
    ErrorCode.INVALID_REQUEST: "the broker calls the request invalid",
}


def join(member: Member, reason: str, *, attempt: int = 0) -> Step:
    """Send JoinGroup with all that the member claims now."""
    stated: tuple[Effect, ...] = ()
    if member.generation < 0:
        member, stated = with_state(member, NodeState.JOINING)
    member = replace(member, phase=Phase.JOINING, claimed=member.claims, candidates=())
    return member, (*stated, SendJoin(member.member_id, member.subscription(), attempt, reason))


def settle(member: Member) -> Step:
    """Join again if others wait for what was let go, or the plan is older than an announcement."""
    if member.phase is not Phase.SETTLED:
        return member, ()
    if not member.releasing and _is_awaited(member):
        return join(member, "let go of what others are to get")
    announced = digest(member.user_data)
    if member.facts is None or member.facts.seen == announced:
        return replace(member, nudged=b""), ()
    if member.nudged == announced:
        return member, ()
    return join(replace(member, nudged=announced), "what the node announces has changed")


def let_go(member: Member, number: int) -> Step:
    """The owner has let go of what it was told."""
    left = tuple(each for each in member.releasing if each.number != number)
    member = replace(member, releasing=left)
    if member.phase is Phase.LEAVING and not left:
        return member, (SendLeave(member.member_id),)
    return settle(member)


def lose(member: Member) -> Step:
    """Give up all that is held: it may be another node's."""
    effects: tuple[Effect, ...] = (Publish(PartitionsLost(member.held)),) if member.held else ()
    lost = replace(member, held=(), releasing=(), generation=-1)
    lost, stated = with_state(lost, NodeState.JOINING)
    return lost, (*effects, *stated)


def lose_coordinator(member: Member, reason: str) -> Step:
    """Look for the coordinator again, and go on where the member was."""
    if member.phase is Phase.SETTLED:
        suspected, stated = with_state(member, NodeState.SUSPECTED)
        unlisted = DESCRIBES_MAX if not member.is_listed else member.describes
        suspected = replace(suspected, trouble=reason, describes=unlisted)
        return suspected, (ForgetCoordinator(), *stated)
    member, effects = _retry(member, reason)
    return member, (ForgetCoordinator(), *effects)


def refuse(member: Member, code: int) -> Step:
    """What an error code of the coordinator means for the member."""
    match code:
        case ErrorCode.REBALANCE_IN_PROGRESS:
            result = join(member, "the group rebalances")
        case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
            result = _rejoin(member, code)
        case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_NOT_AVAILABLE:
            result = lose_coordinator(member, ErrorCode(code).name)
        case ErrorCode.FENCED_INSTANCE_ID:
            result = fail(member, Fenced(member.node.node_id))
        case _ if code in _FORBIDDEN:
            result = fail(member, SecurityError(_FORBIDDEN[ErrorCode(code)]))
        case _ if code in _REFUSALS:
            result = fail(member, GroupRefused(member.group_id, _REFUSALS[ErrorCode(code)]))
        case _ if member.phase is Phase.SETTLED:
            result = with_state(replace(member, trouble=_name(code)), NodeState.SUSPECTED)
        case _:
            result = _retry(member, _name(code))
    return result


def stop(member: Member) -> Step:
    """Leave: first the owner lets go of everything, then LeaveGroup is sent."""
    if member.phase is Phase.LEAVING:
        return member, ()
    if member.phase in (Phase.OUTSIDE, Phase.OVERDUE):
        return with_state(replace(member, phase=Phase.GONE), NodeState.LEFT)
    member, stated = with_state(replace(member, phase=Phase.LEAVING), NodeState.DRAINING)
    effects = list(stated)
    if member.held:
        told = PartitionsRevoked(member.held, member.revocations)
        effects.append(Publish(told))
        member = replace(
            member,
            held=(),
            releasing=(*member.releasing, told),
            revocations=member.revocations + 1,
        )
    if not member.releasing:
        effects.append(SendLeave(member.member_id))
    return member, tuple(effects)


def overdue(member: Member) -> Step:
    """Leave because a callback does not return: others shall not wait for this node."""
    if member.phase is Phase.LEAVING and member.releasing:
        return replace(member, releasing=()), (SendLeave(member.member_id),)
    if member.phase not in (Phase.JOINING, Phase.SYNCING, Phase.SETTLED):
        return member, ()
    failure = PollTimeoutExceeded(
        "a callback ran longer than max_poll_interval, so this node left the group; it joins again"
        " when the callback returns. Do less in it, or raise max_poll_interval"
    )
    lost, effects = lose(member)
    lost = replace(lost, phase=Phase.OVERDUE, member_id="", trouble=str(failure))
    return lost, (Publish(Reported(failure)), *effects, SendLeave(member.member_id))


def announce(member: Member, event: Announce) -> Step:
    """Say something new about the node; the same bytes as before are nothing new."""
    check_metadata(event.metadata)
    state = NodeState.DRAINING if event.is_draining else NodeState.JOINING
    node = replace(member.node, metadata=event.metadata, state=state)
    announced = encode_node(node)
    if announced == member.user_data:
        return member, ()
    member = replace(member, node=node, user_data=announced)
    if member.phase is Phase.SETTLED:
        return join(member, "what the node announces has changed")
    return member, ()


def fail(member: Member, failure: DiscoveryError) -> Step:
    """End the membership."""
    effects: tuple[Effect, ...] = (Publish(PartitionsLost(member.held)),) if member.held else ()
    ended = replace(member, phase=Phase.GONE, held=(), releasing=(), trouble=str(failure))
    ended, stated = with_state(ended, NodeState.LEFT)
    return ended, (*effects, *stated, Fail(failure))


def with_state(member: Member, state: NodeState) -> Step:
    """Stand differently in the group, and say so if it is news."""
    if member.state is state:
        return member, ()
    return replace(member, state=state), (Publish(StateChanged(state)),)


def _is_awaited(member: Member) -> bool:
    """Whether others wait until this member joins without what it claimed.

    The leader says so, also to a process that has taken the place of the one that made the claim.
    """
    if member.facts is not None:
        return member.facts.is_awaited
    return bool(set(member.claimed) - set(member.held))


def _rejoin(member: Member, code: int) -> Step:
    """The coordinator no longer knows the member, or not in this generation."""
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        member = replace(member, member_id="")
    attempt = member.attempts
    lost, effects = lose(replace(member, attempts=attempt + 1, trouble=_name(code)))
    joining, then = join(lost, _name(code), attempt=attempt)
    return joining, (*effects, *then)


def _retry(member: Member, reason: str) -> Step:
    """Join again after a while, longer each time."""
    attempts = member.attempts + 1
    return join(replace(member, attempts=attempts, trouble=reason), reason, attempt=attempts)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
