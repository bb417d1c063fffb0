"""How handlers find what a request names: topics, streams, groups, and the proofs that come first.

The topic `__consumer_offsets` is there for clients and tools that look for it. Kafka keeps groups
in it; here they are in the domain logs, and nothing is ever written to this topic. It is made, as
in Kafka, when the first client asks for the coordinator of a group, with the configs that it has
there. From then on it is a topic like any other, internal, with 50 empty partitions: what lists,
describes or reads topics needs no special case. Producing to it is refused.

Any broker answers for any group, so the group's domain is shown to be current before its state is
told (E1); the same goes for the topics whose ids the state names (K12). A domain that
cannot be proved takes down only the groups that live in it (row 50).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import TYPE_CHECKING, Final, TypeVar

from lakelog.broker.call import Call, CloseConnection, check_named
from lakelog.broker.errors import Attempt, failure_code, unknown_code
from lakelog.groups.state import ClassicGroup, ClassicState, Group
from lakelog.groups.table import domain_index
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure, Unavailable
from lakelog.model.ids import INTERNAL_TOPICS, LEADER_EPOCH, OFFSETS_TOPIC, TopicId
from lakelog.telemetry import event
from lakelog.topics.failures import TopicFailure, name_fault

if TYPE_CHECKING:
    from lakelog.broker.call import Broker, Call
    from lakelog.topics.topic import Topic

OFFSETS_TOPIC_PARTITIONS: Final = 50
"""What `offsets.topic.num.partitions` is by default."""

OFFSETS_TOPIC_REPLICATION: Final = 1
"""What Metadata shows; the object store replicates."""

OFFSETS_TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "104857600",
    "lakelog.format": "kfs",
}
"""Kafka's own, and that there is no table of it."""

CREATION_S_MAX: Final = 2.0
"""How long a client waits for it at most; it does not need the topic."""

ADMIN_CLIENT_ID: Final = "__admin_client"
"""The client id by which Kafka lets its own tools write to internal topics."""

_log = logging.getLogger("lakelog.broker")


def is_writable(name: str, call: "Call") -> bool:
    """Whether this client may produce to a topic of that name."""
    return name not in INTERNAL_TOPICS or call.client_id == ADMIN_CLIENT_ID


async def ensure_offsets_topic(broker: "Broker") -> None:
    """Make the topic, if it is not there; a failure is nobody's business but the log's."""
    if broker.topics.cached(OFFSETS_TOPIC) is not None:
        return
    try:
        async with asyncio.timeout(CREATION_S_MAX):
            await broker.topics.create(
                OFFSETS_TOPIC,
                partitions=OFFSETS_TOPIC_PARTITIONS,
                replication_factor=OFFSETS_TOPIC_REPLICATION,
                configs=OFFSETS_TOPIC_CONFIGS,
            )
    except (TopicFailure, Failure, TimeoutError) as reason:  # it is tried again with the next one
        event(_log, "offsets_topic_not_made", logging.DEBUG, reason=repr(reason))


NO_EPOCH: Final = -1
"""A client that does not know an epoch sends this, and nothing is checked."""

PARTITIONS_MAX: Final = 25_000
"""The most partitions of one request. Reading and answering a partition takes about a kilobyte, and
two megabytes of a hostile request can name 130,000 of them."""

LOOK_S_MAX: Final = 5.0
"""How long a look at the store may take before its topics are answered retriably."""


def check_count(partitions: Iterable[Sized]) -> None:
    """Close the connection of a client that names more partitions than one request may."""
    count = sum(len(named) or 1 for named in partitions)  # a topic alone costs as much
    if count > PARTITIONS_MAX:
        raise CloseConnection(f"{count} partitions in one request; at most {PARTITIONS_MAX}")


async def unproven_code(
    broker: "Broker", streams: Iterable[int], *, arrived_s: float, deadline_s: float
) -> ErrorCode:
    """The code for all these streams when their state cannot be shown to be current (rule 16)."""
    asked = [stream for stream in streams if stream >= 0]
    if not asked:
        return ErrorCode.NONE
    try:
        await broker.log.prove(asked, arrived_s=arrived_s, deadline_s=deadline_s)
    except Failure as failure:
        return failure_code(failure, Attempt.READING)
    return ErrorCode.NONE


def epoch_code(current_leader_epoch: int) -> ErrorCode:
    """What a client hears of the epoch it takes for current: older 74, newer 75 (row 30)."""
    if current_leader_epoch in (NO_EPOCH, LEADER_EPOCH):
        return ErrorCode.NONE
    if current_leader_epoch < LEADER_EPOCH:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


class TopicFinder:
    """Finds the topics of one request.

    "Unknown" is an answer that needs to be current (T1), so the first topic that is not known here,
    or not with a partition that is asked for, costs a look at the store. The look began after the
    request came, so it serves all its topics: a request of thousands of unknown names costs no more
    than one.
    """

    __slots__ = ("_attempt", "_code", "_looked", "_topics")

    def __init__(self, broker: "Broker", attempt: Attempt) -> None:
        self._topics = broker.topics
        self._attempt = attempt
        self._looked = False
        self._code: ErrorCode | None = None

    def cached(self, name_or_id: str | bytes) -> "Topic | None":
        """The topic of that name or id if it is known here; None proves nothing."""
        if isinstance(name_or_id, str):
            return self._topics.cached(name_or_id)
        return self._topics.cached_id(TopicId(name_or_id))

    @property
    def no_partition(self) -> ErrorCode:
        """The code for a partition that a topic was not found to have."""
        return self._code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def find(self, name_or_id: str | bytes, partitions: Iterable[int]) -> "Topic | ErrorCode":
        """The topic of that name or id with these partitions, or the code for all of them.

        A topic without some of them was seen to be so after the request came, see `no_partition`.
        """
        found = self.cached(name_or_id)
        if found is None and isinstance(name_or_id, str) and name_fault(name_or_id) is not None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # a name that nobody can have
        # Others may have made the topic, or made it larger.
        lacks = found is None or max(partitions, default=-1) >= found.partition_count
        if lacks and not self._looked:
            await self._look()
            found = self.cached(name_or_id)
        return found or self._code or unknown_code(by_id=isinstance(name_or_id, bytes))

    async def _look(self) -> None:
        self._looked = True
        try:
            async with asyncio.timeout(LOOK_S_MAX):
                await self._topics.current()
        except TimeoutError:
            self._code = failure_code(Unavailable("no answer"), self._attempt)
        except Failure as failure:  # the store is down: unknown topics wait, the others go on
            self._code = failure_code(failure, self._attempt)


DescribedT = TypeVar("DescribedT")

PROOF_S_MAX: Final = 5.0
"""How long a proof may take before its groups are answered retriably."""

GROUP_OPERATIONS: Final = 3400
"""A bit field of AclOperation codes: everything is allowed."""

DEAD: Final = "Dead"
"""The state of a group that there is not."""

STATE_NAMES: Final = {
    ClassicState.EMPTY: "Empty",
    ClassicState.PREPARING: "PreparingRebalance",
    ClassicState.COMPLETING: "CompletingRebalance",
    ClassicState.STABLE: "Stable",
}
"""What the states of classic groups are called."""


async def unproven(broker: "Broker", call: Call, group_ids: Iterable[str]) -> frozenset[str]:
    """The groups among these whose state cannot be shown to be current."""
    by_domain: dict[int, list[str]] = {}
    for group_id in group_ids:
        domain = domain_index(group_id, broker.cluster.domains)
        by_domain.setdefault(domain, []).append(group_id)
    same_domain = list(by_domain.values())
    proved = await asyncio.gather(*(is_proved(broker, call, ids[0]) for ids in same_domain))
    failed = (ids for ids, is_current in zip(same_domain, proved, strict=True) if not is_current)
    return frozenset(group_id for ids in failed for group_id in ids)


async def is_proved(broker: "Broker", call: Call, group_id: str | None) -> bool:
    """Whether the group's domain, or with None every domain, could be shown to be current."""
    try:
        async with asyncio.timeout(PROOF_S_MAX):
            await broker.groups.prove(group_id, arrived_s=call.arrived_s)
    except (Failure, TimeoutError):  # the client asks again, here or elsewhere
        return False
    return True


async def are_topics_current(broker: "Broker") -> bool:
    """Whether the known topics could be shown to be all there are."""
    try:
        async with asyncio.timeout(PROOF_S_MAX):
            await broker.topics.current()
    except (Failure, TimeoutError):  # as above
        return False
    return True


async def describe_each(
    broker: "Broker",
    call: Call,
    named: Sequence[str],
    describe: Callable[[str, Group | None, bool], DescribedT],
    *,
    tells_topics: bool = False,
) -> tuple[DescribedT, ...]:
    """Describe the groups that a request names, each once, after their proofs of currency.

    `describe` is told the group and whether it could be shown to be current; where it tells topics
    too, these have to be current as well.
    """
    check_named(named)
    group_ids = tuple(dict.fromkeys(named))
    stale = await unproven(broker, call, group_ids)
    if tells_topics and not await are_topics_current(broker):
        stale = frozenset(group_ids)
    described: list[DescribedT] = []
    async for part in broker.loop_turn.parts(group_ids):
        for group_id in part:
            group = group_of(broker, group_id)
            described.append(describe(group_id, group, group_id not in stale))
    return tuple(described)


def group_of(broker: "Broker", group_id: str) -> Group | None:
    """The group as this broker knows it."""
    return broker.groups.table(group_id).groups.get(group_id)


def classic_state(group: ClassicGroup) -> str:
    """What the group's state is called."""
    return STATE_NAMES[group.state]


def topic_of(broker: "Broker", topic_id: bytes) -> "Topic | None":
    """The topic of an id that a group's state names; None for one that is deleted."""
    return broker.topics.cached_id(TopicId(topic_id))
