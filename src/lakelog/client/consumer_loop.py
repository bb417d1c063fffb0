"""The part of a consumer that lives on the loop: found offsets, fetches, metadata and decoding.

Rules: it is made, used and closed on one loop, but for `seek`, `wake` and the like, which the loop
is told to call. Offsets are all found before the first fetch, so that the end of every partition
is the one it had when the consumer was made. Whatever fails while it opens, nothing is left.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from lakelog.client.decoder import Decoded, DecodeOptions, Decoder, MemoryAccount, Slice
from lakelog.client.events import ConsumerEvents, Event, PartitionAdded, ReadFailed
from lakelog.client.fetch_scheduler import MIB, FetchLimits, FetchScheduler
from lakelog.client.fetcher import Fetcher
from lakelog.client.metadata_refresh import MetadataRefresh
from lakelog.client.options import (
    COMMITTED,
    ConsumerOptions,
    PartitionSnapshot,
    Snapshot,
    SourceTopic,
    StartPlan,
    start_offset,
)
from lakelog.client.watermark import PartitionState
from lakelog.clock import Clock, Entropy, Tasks
from lakelog.kafka_client.admin import (
    LogBounds,
    TopicPartition,
    commit,
    find_ends,
    find_topics,
    list_offsets,
    load_committed,
)
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.failures import (
    BadConfig,
    ClientFailure,
)
from lakelog.kafka_client.metadata import PartitionMetadata, TopicMetadata
from lakelog.kafka_client.settings import ClientSettings
from lakelog.retry import RetryDeadline

REQUEST_BYTES: Final = 4 * MIB
"""Of one request: small enough that it is decoded while the next one comes."""


class ConsumerLoop:
    """Reads all partitions of some topics into `event_queue`."""

    def __init__(
        self,
        settings: ClientSettings,
        options: ConsumerOptions,
        event_queue: ConsumerEvents,
        memory: MemoryAccount,
        *,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._settings = settings
        self._options = options
        self._clock = clock
        self._tasks = Tasks()
        self._cluster = KafkaCluster(settings, clock=clock, entropy=entropy)
        self.scheduler = FetchScheduler(
            FetchLimits(
                bytes_max=options.max_held_bytes,
                rows_max=options.rows_max(1),
                request_bytes=min(REQUEST_BYTES, settings.fetch_max_bytes),
                partition_bytes=settings.max_partition_fetch_bytes,
                is_ordered=options.ordered,
            )
        )
        self._decode_options = DecodeOptions(options.ordered, settings.check_crcs)
        self._event_queue = event_queue
        self._memory = memory
        self._decoder: Decoder | None = None
        self.fetcher = Fetcher(self._cluster, self.scheduler, memory, self._put, self._spawn)
        self.refresh: MetadataRefresh | None = None

    # The beginning and the end.

    async def open(self, topics: tuple[SourceTopic, ...]) -> list[PartitionAdded]:
        """Find where every partition begins and ends, and begin to read."""
        deadline = self._deadline()
        views = await self._find_cluster([topic.name for topic in topics], deadline)
        places = _places(views.values())
        ends, times, commits = await asyncio.gather(
            find_ends(self._cluster, places, deadline),
            find_times(self._cluster, topics, places, self._clock.now_ms(), deadline),
            self._find_commits(topics, places, deadline),
        )
        policies = {topic.name: topic.policy for topic in topics}
        reset = self._settings.auto_offset_reset
        joined = []
        for place in places:
            policy, log = policies[place.topic], ends[place]
            found = commits.get(place) if policy == COMMITTED else times.get(place)
            start = start_offset(StartPlan(place, policy, log, found, reset))
            partition = self._partition(place, views, start)
            partition.end = log.end
            joined.append(PartitionAdded(partition, LogBounds(start, log.end), start))
        self._begin(joined, views)
        return joined

    async def restore(self, snapshot: Snapshot) -> list[PartitionAdded]:
        """Go on from where another consumer was."""
        deadline = self._deadline()
        names = sorted({partition.topic for partition in snapshot.partitions})
        views = await self._find_cluster(names, deadline)
        places = _places(views.values())
        ends = await find_ends(self._cluster, places, deadline)
        known = {
            TopicPartition(saved.topic, saved.partition): saved for saved in snapshot.partitions
        }
        gone = sorted(set(known) - set(places))
        if gone and not self._is_other(views[gone[0].topic], known[gone[0]]):
            raise BadConfig("snapshot", f"the cluster has no {gone[0]}")
        joined = []
        for place in places:
            each = known.get(place)
            if each is None or self._is_other(views[place.topic], each):
                log = ends[place]
                partition = self._partition(place, views, log.start)
                joined.append(PartitionAdded(partition, LogBounds(log.start, log.start), log.start))
            else:
                partition = self._partition(place, views, each.next_offset)
                partition.released = each.released
                span = LogBounds(each.start, each.end)
                joined.append(PartitionAdded(partition, span, each.next_offset))
            partition.end = ends[place].end
        self._begin(joined, views)
        return joined

    async def close(self) -> None:
        """Stop reading and hang up."""
        self.fetcher.close()
        await self._cluster.close()
        await self._tasks.close()

    def close_decoder(self) -> None:
        """End the decoder's thread; from any thread but the loop's."""
        if self._decoder is not None:
            self._decoder.close()

    # What the reader asks for.

    def wake(self) -> None:
        """The reader made room, or has nothing to give out."""
        self.fetcher.pump()

    async def seek(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Read partitions from these offsets; returns the versions of what comes then."""
        versions = {}
        for index, offset in offsets.items():
            partition = self.fetcher.partitions[index]
            partition.jump(offset)
            partition.healed()
            partition.released = ()
            partition.corrupt_offset = None
            partition.waiting_since_s = None
            self.scheduler.resume(index, forget=True)
            versions[index] = partition.version
        self.fetcher.pump()
        return versions

    def await_no_more(self, changes: Mapping[int, bool], *, is_primed: bool) -> None:
        """Whether the reader waits for these partitions; and whether it waits for any at all."""
        for index, is_waited_for in changes.items():
            if index in self.fetcher.partitions:
                self.scheduler.wait_for(index, is_waited_for=is_waited_for)
        if is_primed:
            self.scheduler.end_priming()
        self.fetcher.pump()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets to the group."""
        await commit(self._cluster, self._settings.group_id, offsets, self._deadline())

    async def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What the group committed of these partitions."""
        group_id = self._settings.group_id
        return await load_committed(self._cluster, group_id, places, self._deadline())

    # Inside.

    async def _find_cluster(
        self, names: list[str], deadline: RetryDeadline
    ) -> dict[str, TopicMetadata]:
        await self._cluster.start(timeout_s=deadline.left_s())
        return await find_topics(self._cluster, names, deadline)

    async def _find_commits(
        self,
        topics: Iterable[SourceTopic],
        places: Iterable[TopicPartition],
        deadline: RetryDeadline,
    ) -> dict[TopicPartition, int]:
        committed = {topic.name for topic in topics if topic.policy == COMMITTED}
        wanted = [place for place in places if place.topic in committed]
        if not wanted:
            return {}
        return await load_committed(self._cluster, self._settings.group_id, wanted, deadline)

    def _partition(
        self, place: TopicPartition, views: Mapping[str, TopicMetadata], position: int
    ) -> PartitionState:
        if self.refresh is None:
            self.refresh = MetadataRefresh(
                self._cluster, self.fetcher, self.scheduler, self._put, tuple(sorted(views))
            )
            self.fetcher.error_handler = self.refresh
        return PartitionState(
            self.refresh.index(place), place, views[place.topic].topic_id, position
        )

    def _begin(self, joined: list[PartitionAdded], views: Mapping[str, TopicMetadata]) -> None:
        """Read all partitions from now on."""
        assert self.refresh is not None, "made with the first partition"
        loop = asyncio.get_running_loop()

        def report(done: Decoded) -> None:
            try:
                loop.call_soon_threadsafe(self.fetcher.decoded, done)
            except RuntimeError:
                return  # the loop is closed, and nobody asks any more

        self._decoder = Decoder(self._decode_options, self._event_queue, self._memory, report)
        rows_max = self._options.rows_max(len(joined))
        self.scheduler.limits = replace(self.scheduler.limits, rows_max=rows_max)
        loop.set_exception_handler(self._on_bug)
        self._spawn(self.refresh.run())
        for added in joined:
            view = _view(views, added.partition.place)
            waits = added.position < added.span.end
            self.refresh.adopt(added.partition, view, is_waited_for=waits)
        self.fetcher.pump()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside; if it ends by a bug, the reader hears of it."""
        self._tasks.spawn(self._guard(work), name="lakelog-consumer")

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as bug:  # noqa: BLE001 - told instead of dying in silence
            self._tell_bug(bug)

    def _on_bug(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        bug = context.get("exception")
        if isinstance(bug, Exception):
            self._tell_bug(bug)
        else:
            loop.default_exception_handler(context)

    def _tell_bug(self, bug: Exception) -> None:
        failure = ClientFailure(f"the consumer is broken: {bug!r}")
        failure.__cause__ = bug
        self._event_queue.put([ReadFailed(failure)])

    def _put(self, work: "list[Slice | Event] | list[Slice] | list[Event]") -> None:
        if self._decoder is not None:
            self._decoder.put([*work])

    def _is_other(self, view: TopicMetadata, snapshot: PartitionSnapshot) -> bool:
        """Whether the topic was made again since."""
        known = bytes.fromhex(snapshot.topic_id)
        return view.has_id and any(known) and known != view.topic_id

    def _deadline(self) -> RetryDeadline:
        return RetryDeadline(self._clock, self._settings.default_api_timeout_ms / 1000)


def _places(views: Iterable[TopicMetadata]) -> list[TopicPartition]:
    return sorted(
        TopicPartition(view.name, partition.partition)
        for view in views
        for partition in view.partitions
    )


def _view(views: Mapping[str, TopicMetadata], place: TopicPartition) -> PartitionMetadata:
    partitions = views[place.topic].partitions
    (found,) = (view for view in partitions if view.partition == place.partition)
    return found


async def find_times(
    cluster: KafkaCluster,
    topics: Iterable[SourceTopic],
    places: Iterable[TopicPartition],
    now_ms: int,
    deadline: RetryDeadline,
) -> dict[TopicPartition, int]:
    """Where the times are that policies name; partitions without such a record are left out."""
    times = {topic.name: topic.start_ms(now_ms) for topic in topics}
    wanted = {place: time for place in places if (time := times[place.topic]) is not None}
    found = await list_offsets(cluster, wanted, deadline) if wanted else {}
    return {place: offset for place, offset in found.items() if offset >= 0}
