"""What is counted about groups: how many are in which state, and how often they rebalance.

States have the names that Kafka has for them. Every broker sees every rebalance, and only the first
broker of a group counts it: the sum over all brokers is the number of rebalances.
"""

from collections.abc import Callable, Sequence

from lakelog.coordinator.group_domain import GroupDiff, GroupDomain
from lakelog.coordinator.member_expiry import rank_of
from lakelog.coordinator.ports import Brokers
from lakelog.groups import consumer
from lakelog.groups.state import ClassicGroup, ClassicState, ConsumerGroup, Group
from lakelog.telemetry import Metrics

CLASSIC_STATES = {
    ClassicState.EMPTY: "Empty",
    ClassicState.PREPARING: "PreparingRebalance",
    ClassicState.COMPLETING: "CompletingRebalance",
    ClassicState.STABLE: "Stable",
}
"""The names that Kafka has for the states of classic groups."""


class GroupMetrics:
    """Keeps the metrics of groups; rebalances are counted by the group's first broker alone.

    The state of a consumer group takes a look at all its members, so it is found out when somebody
    wants to see it.
    """

    def __init__(
        self,
        domains: Sequence[GroupDomain],
        domain_of: Callable[[str], GroupDomain],
        brokers: Brokers,
        metrics: Metrics,
    ) -> None:
        self._domain_of = domain_of
        self._brokers = brokers
        self._metrics = metrics
        self._states: dict[str, tuple[str, str]] = {}
        self._changed: set[str] = set()
        metrics.groups.refresh = self._refresh
        for domain in domains:
            domain.listeners.append(self._see)

    def _see(self, change: GroupDiff) -> None:
        self._changed.add(change.group_id)
        if is_rebalanced(change.before, change.after):
            ranked = self._brokers.ranked(change.group_id)
            if rank_of(ranked, self._brokers.own_id) == 0:
                self._metrics.rebalances.inc()

    def _refresh(self) -> None:
        changed, self._changed = self._changed, set()
        for group_id in sorted(changed):
            before = self._states.pop(group_id, None)
            if before is not None:
                self._metrics.groups.add(before, -1)
            group = self._domain_of(group_id).group(group_id)
            if group is not None:
                state = self._states[group_id] = state_of(group)
                self._metrics.groups.add(state, 1)


def state_of(group: Group) -> tuple[str, str]:
    """A group's protocol and state as Kafka names them."""
    if isinstance(group, ClassicGroup):
        return "classic", CLASSIC_STATES[group.state]
    return "consumer", consumer.state_name(group)


def is_rebalanced(before: Group | None, after: Group | None) -> bool:
    """Whether the group has a new generation, or a new target."""
    if isinstance(before, ClassicGroup) and isinstance(after, ClassicGroup):
        return after.generation > before.generation
    if isinstance(before, ConsumerGroup) and isinstance(after, ConsumerGroup):
        return after.target is not before.target
    return False
