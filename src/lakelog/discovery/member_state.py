"""What a member knows: where it is in the protocol, what it holds, who the others are. Pure."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from lakelog.discovery.assignment import by_topic
from lakelog.discovery.config import KafkaDiscoveryConfig
from lakelog.discovery.membership_values import Revoked
from lakelog.discovery.node import NodeId, NodeInfo, NodeState, TopicPartition
from lakelog.discovery.partition_ids import PartitionIds
from lakelog.discovery.roster import RawMember
from lakelog.discovery.user_data import AssignmentFacts, encode_node
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
    releasing: tuple[Revoked, ...] = ()
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
