"""The parts of a node as other parts of it see them.

`InstrumentedObjects` is an object store that remembers how it has been doing, for readiness.
`LiveBrokers` and `KnownTopics` are what a group coordinator sees of its broker; `group_configs` and
`broker_configs` are the configs that groups and brokers have, and what follows their changes.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from lakelog.clock import Clock
from lakelog.coordinator.options import GroupOptions, default_settings
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import OutcomeUnknown, Unavailable
from lakelog.model.ids import BrokerId, ByteRange, TopicId
from lakelog.objects.port import Buffer, ObjectInfo, ObjectStore
from lakelog.telemetry import MetricsRegistry
from lakelog.topics.broker_configs import (
    BrokerConfigs,
    group_defaults,
    static_configs,
    topic_layers,
)
from lakelog.topics.cluster import Cluster
from lakelog.topics.group_configs import GroupConfigs
from lakelog.topics.registry import Topics

ResultT = TypeVar("ResultT")


class InstrumentedObjects:
    """Hands every call on, and keeps what the last failure said until a call succeeds."""

    def __init__(self, store: ObjectStore, metrics: MetricsRegistry) -> None:
        self._store = store
        self._failures = metrics.unavailable.labels("objects")
        self.trouble: str | None = None
        self.skew_ms = 0
        metrics.clock_skew.set_function(lambda: self.skew_ms / 1000)

    @property
    def url(self) -> str:
        """Where the objects are, for humans; holds no secret."""
        return self._store.url

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the parts, one after another, as one object, replacing what is there."""
        await self._noted(self._store.put(key, parts))

    async def get(self, key: str) -> memoryview:
        """The whole object."""
        return await self._noted(self._store.get(key))

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """The bytes of each range, in the order asked for; no range is empty."""
        return await self._noted(self._store.get_ranges(key, ranges))

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """The objects whose key begins with `prefix`, in no order."""
        return self._store.list(prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects; those that are gone already are fine."""
        await self._noted(self._store.delete(keys))

    async def clock_skew_ms(self) -> int:
        """How far the store's clock is ahead of ours, measured now."""
        self.skew_ms = await self._store.clock_skew_ms()
        return self.skew_ms

    async def close(self) -> None:
        """Release connections and threads."""
        await self._store.close()

    async def _noted(self, call: Awaitable[ResultT]) -> ResultT:
        try:
            result = await call
        except (Unavailable, OutcomeUnknown) as failure:
            self.trouble = str(failure) or type(failure).__name__
            self._failures.inc()
            raise
        self.trouble = None
        return result


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
