"""What is answered from the state of groups: the proofs that must come first.

Any broker answers for any group, so the group's domain is shown to be current before its state is
told (E1); the same goes for the topics whose ids the state names (K12). A domain that
cannot be proved takes down only the groups that live in it (row 50).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from lakelog.broker.call import Call, check_named
from lakelog.groups.state import ClassicGroup, ClassicState, Group
from lakelog.groups.table import domain_index
from lakelog.model.failures import Failure
from lakelog.model.ids import TopicId

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.topic import Topic

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
