"""What keeps partitions readable: new metadata, moved leaders, lost offsets, new partitions.

Rules:

- Partitions in trouble are asked again after new metadata, which is fetched at once the first time
  and after growing pauses then. After `default.api.timeout.ms` of trouble the reader hears of it;
  the attempts go on.
- A topic that was made again under its name is read from its start, as live. What was read of the
  old one is still given out.
- Partitions that are added to a topic are read from their start, as live.
- What the reader is told goes behind what is being decoded, so that it hears things in order.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lakelog.client.events import Event, PartitionAdded, PositionReset, ReadFailed
from lakelog.client.fetch_scheduler import FetchScheduler
from lakelog.client.fetcher import Fetcher
from lakelog.client.options import EARLIEST, LATEST
from lakelog.client.watermark import PartitionState
from lakelog.kafka_client.admin import LogBounds, TopicPartition, find_ends
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.failures import (
    AuthenticationFailed,
    BrokerError,
    ClientFailure,
    Closed,
    OffsetGone,
    UnknownTopic,
    Untrusted,
)
from lakelog.kafka_client.metadata import PartitionMetadata, TopicMetadata
from lakelog.model.errors import ErrorCode
from lakelog.retry import RetryDeadline

PARTITIONS_MAX: Final = 1 << 18
"""Of one topic; an index is a topic's rank times this, and the partition's number."""

_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


@dataclass(slots=True)
class RefreshCounts:
    """What happened to partitions, so far."""

    partitions_added: int = 0
    topics_recreated: int = 0
    offsets_reset: int = 0


class MetadataRefresh:
    """Looks after the partitions of one consumer; `run` is its task."""

    def __init__(
        self,
        cluster: KafkaCluster,
        fetcher: Fetcher,
        scheduler: FetchScheduler,
        tell: Callable[[list[Event]], None],
        topics: tuple[str, ...],
    ) -> None:
        self.counts = RefreshCounts()
        self._cluster = cluster
        self._fetcher = fetcher
        self._scheduler = scheduler
        self._tell = tell
        self._topics = topics
        self._ranks = len(topics)
        self._by_place: dict[TopicPartition, PartitionState] = {}
        self._out_of_range: set[int] = set()
        self._wanted = asyncio.Event()
        self._failures = 0

    def index(self, place: TopicPartition) -> int:
        """What a partition of one of our topics is called: it sorts like topic and number."""
        return self._topics.index(place.topic) * PARTITIONS_MAX + place.partition

    def adopt(
        self, partition: PartitionState, view: PartitionMetadata, *, is_waited_for: bool
    ) -> None:
        """Look after a partition from now on."""
        self._by_place[partition.place] = partition
        self._fetcher.add(partition, is_waited_for=is_waited_for)
        self._place(partition, view)

    # What fetching says.

    def trouble(self, partition: PartitionState, failure: ClientFailure) -> None:
        """New metadata may heal this."""
        partition.failures += 1
        partition.failure = failure
        if partition.troubled_since_s is None:
            partition.troubled_since_s = self._cluster.clock.monotonic_s()
        if isinstance(failure, AuthenticationFailed | Untrusted):
            self._tell([ReadFailed(failure)])
        self._wanted.set()

    def out_of_range(self, partition: PartitionState) -> None:
        """The position is not in the log."""
        self._out_of_range.add(partition.index)
        self._wanted.set()

    def give_up(self, partition: PartitionState, failure: ClientFailure) -> None:
        """Nothing heals this."""
        self._tell([ReadFailed(failure, partition.index, partition.version)])

    # The task.

    async def run(self) -> None:
        """Do what is to be done, whenever something is, until cancelled."""
        age_s = self._cluster.settings.metadata_max_age_ms / 1000
        while True:
            try:
                async with asyncio.timeout(age_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            try:
                await self._round()
            except Closed:
                return

    async def _round(self) -> None:
        troubled = self._troubled()
        failures = max((partition.failures for partition in troubled), default=0) - 1
        settings = self._cluster.settings
        delay_s = settings.retry_backoff.delay_s(
            max(failures, self._failures), self._cluster.entropy
        )
        await asyncio.sleep(delay_s)
        deadline = RetryDeadline(self._cluster.clock, settings.default_api_timeout_ms / 1000)
        try:
            views = await self._cluster.topics(
                self._topics, fresh=True, timeout_s=deadline.left_s()
            )
            await self._apply(views, deadline)
            await self._find_lost_offsets(deadline)
        except Closed:
            raise
        except ClientFailure as failure:
            self._failures += 1
            for partition in troubled:
                partition.failure = failure
            if isinstance(failure, AuthenticationFailed | Untrusted):
                self._tell([ReadFailed(failure)])
        else:
            self._failures = 0
        self._complain(troubled)
        self._try_again(troubled)

    def _troubled(self) -> list[PartitionState]:
        return [partition for partition in self._by_place.values() if partition.failure is not None]

    def _try_again(self, troubled: Iterable[PartitionState]) -> None:
        is_waiting = False
        for partition in troubled:
            if self._by_place.get(partition.place) is not partition:
                continue  # it was replaced meanwhile
            # Without a leader, or while nobody answers, a fetch now would fail as the last did.
            if self._scheduler.leader(partition.index) is None or self._failures:
                partition.failures += 1
                is_waiting = True
            else:
                self._scheduler.resume(partition.index)
        if is_waiting or self._out_of_range:
            self._wanted.set()
        self._fetcher.pump()

    def _complain(self, troubled: Iterable[PartitionState]) -> None:
        """Tell the reader of trouble that lasts too long: one word for all that say the same."""
        now_s = self._cluster.clock.monotonic_s()
        patience_s = self._cluster.settings.default_api_timeout_ms / 1000
        said: dict[str, ClientFailure] = {}
        for partition in troubled:
            since_s = partition.troubled_since_s
            if (
                partition.failure is not None
                and since_s is not None
                and now_s - since_s >= patience_s
            ):
                said.setdefault(str(partition.failure), partition.failure)
                partition.troubled_since_s = now_s
        if said:
            self._tell([ReadFailed(failure) for failure in said.values()])

    # New metadata.

    async def _apply(self, views: Mapping[str, TopicMetadata], deadline: RetryDeadline) -> None:
        for topic in self._topics:
            view = views.get(topic)
            if view is None or view.error:
                self._note_error(topic, view)
                continue
            known = [
                partition for partition in self._by_place.values() if partition.place.topic == topic
            ]
            for partition in known:
                if not any(partition.topic_id):  # KIP-516: unknown before, so the same
                    partition.topic_id = view.topic_id
            old = [
                partition
                for partition in known
                if view.has_id and partition.topic_id != view.topic_id
            ]
            if old:
                self.counts.topics_recreated += 1
                await self._replace(view, old, deadline)
            await self._join(view, deadline)
            for partition_view in view.partitions:
                self._place(
                    self._by_place[TopicPartition(topic, partition_view.partition)], partition_view
                )

    def _note_error(self, topic: str, view: TopicMetadata | None) -> None:
        """A topic that nobody knows any more is why its partitions are in trouble."""
        if view is None or view.error in _UNKNOWN:
            for partition in self._troubled():
                if partition.place.topic == topic:
                    partition.failure = UnknownTopic(topic)

    def _place(self, partition: PartitionState, view: PartitionMetadata) -> None:
        partition.leader_epoch = view.leader_epoch
        partition.replica = None
        self._fetcher.place(partition, view.leader if view.has_leader else None)
        if not view.has_leader and partition.failure is None:
            self._scheduler.stop(partition.index)
            self.trouble(
                partition, BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition.place}")
            )

    async def _replace(
        self, view: TopicMetadata, old: list[PartitionState], deadline: RetryDeadline
    ) -> None:
        """A topic was made again: leave the old partitions, and read the new ones."""
        places = [TopicPartition(view.name, partition.partition) for partition in view.partitions]
        spans = await find_ends(self._cluster, places, deadline)
        by_place = {partition.place: partition for partition in old}
        for place in sorted(set(by_place) - set(places)):
            self._leave(by_place[place])
        # The old ones keep their indexes while rows of them are held.
        rank, self._ranks = self._ranks, self._ranks + 1
        for place in places:
            replaced = by_place.get(place)
            if replaced is not None:
                self._leave(replaced)
                index = rank * PARTITIONS_MAX + place.partition
                self._welcome(view, PartitionState(index, place, view.topic_id, 0), spans, replaced)

    def _leave(self, partition: PartitionState) -> None:
        self._fetcher.remove(partition)
        self._out_of_range.discard(partition.index)
        del self._by_place[partition.place]

    async def _join(self, view: TopicMetadata, deadline: RetryDeadline) -> None:
        """Read partitions that were not there before."""
        places = [TopicPartition(view.name, partition.partition) for partition in view.partitions]
        new = [place for place in places if place not in self._by_place]
        spans = await find_ends(self._cluster, new, deadline) if new else {}
        for place in new:
            self.counts.partitions_added += 1
            partition = PartitionState(self.index(place), place, view.topic_id, 0)
            self._welcome(view, partition, spans, None)

    def _welcome(
        self,
        view: TopicMetadata,
        partition: PartitionState,
        spans: Mapping[TopicPartition, LogBounds],
        replaced: PartitionState | None,
    ) -> None:
        span = spans[partition.place]
        partition.position, partition.end = span.start, span.end
        history = LogBounds(span.start, span.start)
        index = None if replaced is None else replaced.index
        self._tell([PartitionAdded(partition, history, span.start, index)])
        number = partition.place.partition
        (partition_view,) = (
            candidate for candidate in view.partitions if candidate.partition == number
        )
        self.adopt(partition, partition_view, is_waited_for=False)

    # Lost offsets.

    async def _find_lost_offsets(self, deadline: RetryDeadline) -> None:
        """Go on where `auto.offset.reset` says, for those whose position is gone."""
        lost = [
            partition
            for partition in self._by_place.values()
            if partition.index in self._out_of_range
        ]
        if not lost:
            return
        spans = await find_ends(self._cluster, [partition.place for partition in lost], deadline)
        reset = self._cluster.settings.auto_offset_reset
        for partition in lost:
            self._out_of_range.discard(partition.index)
            span = spans[partition.place]
            if span.start <= partition.position <= span.end:
                self._scheduler.resume(partition.index)  # it was true for a moment only
            elif reset in (EARLIEST, LATEST):
                self._reset(partition, span.start if reset == EARLIEST else span.end)
            else:
                topic, number = partition.place
                gone = OffsetGone(topic, number, partition.position, span.start, span.end)
                self.give_up(partition, gone)

    def _reset(self, partition: PartitionState, offset: int) -> None:
        self.counts.offsets_reset += 1
        partition.jump(offset)
        self._tell([PositionReset(partition.index, partition.version, offset)])
        self._scheduler.resume(partition.index, forget=True)
