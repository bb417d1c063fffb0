"""What a group coordinator sees of its broker, and what follows the configs of brokers.

The brokers that live, the topics that are known, the configs of groups and of brokers.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from lakelog.clock import Clock
from lakelog.coordinator.options import GroupOptions
from lakelog.coordinator.ports import default_settings
from lakelog.meta.port import MetadataStore
from lakelog.model.ids import BrokerId, TopicId
from lakelog.topics.broker_configs import BrokerConfigs
from lakelog.topics.broker_settings import group_defaults, static_configs, topic_layers
from lakelog.topics.cluster import Cluster
from lakelog.topics.group_configs import GroupConfigs
from lakelog.topics.registry import Topics


class LiveBrokers:
    """The brokers of the cluster, and how sure we are to be one of them."""

    def __init__(self, cluster: Cluster, own_id: BrokerId) -> None:
        self._cluster = cluster
        self.own_id = int(own_id)

    def live(self) -> Sequence[int]:
        """The ids of the brokers that live."""
        return [node.id for node in self._cluster.nodes()]

    def alive_until_s(self) -> float:
        """Until then, on the monotonic clock, nobody may hold that we are gone (K6)."""
        return self._cluster.alive_until_s

    def ranked(self, key: str) -> Sequence[int]:
        """The ids of the live brokers, the one that the key belongs to first."""
        return self._cluster.view().ranked(key)


class KnownTopics:
    """Every known topic's id and number of partitions, by name."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._table: Mapping[str, tuple[TopicId, int]] | None = None
        topics.on_change(self._forget)

    def topics(self) -> Mapping[str, tuple[TopicId, int]]:
        """The table as it is now; it is made anew after a change only."""
        if self._table is None:
            self._table = MappingProxyType(
                {
                    topic.name: (topic.id, topic.partition_count)
                    for topic in self._topics.cached_all()
                }
            )
        return self._table

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call it whenever the table has changed."""
        self._topics.on_change(callback)

    def _forget(self) -> None:
        self._table = None


def group_configs(store: MetadataStore, clock: Clock, options: GroupOptions) -> GroupConfigs:
    """What groups set for themselves, on top of what the options say for all of them."""
    return GroupConfigs(store, clock, default_settings(options))


def broker_configs(
    store: MetadataStore, own_id: BrokerId, topics: Topics, groups: GroupConfigs
) -> BrokerConfigs:
    """What was altered for this broker or for all; topics and groups follow it from now on."""
    chosen = groups.defaults
    configs = BrokerConfigs(store, own_id, static_configs(topics.defaults, chosen))

    def follow() -> None:
        altered = configs.altered()
        topics.use(topic_layers(altered))
        groups.use(group_defaults(altered, chosen))

    configs.on_change(follow)
    return configs
