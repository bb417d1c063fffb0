"""Offsets that a cluster knows: where logs begin and end, where a time is, what a group committed.

Rules:

- Every partition's leader is asked, and again after new metadata if it has moved; what a repeat
  cannot heal is raised. Everything ends within the deadline it was given. With `read_committed` a
  log ends at its last stable offset.
- A standalone consumer commits with generation -1 and no member id, which a coordinator takes as
  long as the group has no members. Partitions are named, not numbered by topic id, so versions stop
  before those that know only ids.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.failures import (
    BrokerError,
    ClientFailure,
    TimedOut,
    UnknownTopic,
    Unreachable,
)
from lakelog.kafka_client.metadata import TopicMetadata
from lakelog.model.errors import RETRIABLE, ErrorCode
from lakelog.retry import RetryDeadline
from lakelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lakelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from lakelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

EARLIEST_MS: Final = -2
LATEST_MS: Final = -1
CONSUMER: Final = -1
UNKNOWN_TRIES: Final = 4
"""A topic that was just made is unknown to some brokers for a moment."""

_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class TopicPartition(NamedTuple):
    """One partition by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic} [{self.partition}]"


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Where reading begins, and where the partition ended when that was found out."""

    start: int
    end: int


async def find_topics(
    cluster: KafkaCluster, names: Iterable[str], deadline: RetryDeadline
) -> dict[str, TopicMetadata]:
    """These topics, all of them there, each with its partitions."""
    names = list(names)
    tries = 0
    while True:
        views = await cluster.topics(names, fresh=tries > 0, timeout_s=deadline.left_s())
        failure = _first_failure(names, views)
        if failure is None:
            return views
        tries += 1
        is_unknown = isinstance(failure, UnknownTopic)
        if is_unknown and tries >= UNKNOWN_TRIES and not cluster.settings.allow_auto_create_topics:
            raise failure
        await pause(cluster, deadline, failure)


def _first_failure(names: list[str], views: Mapping[str, TopicMetadata]) -> ClientFailure | None:
    for name in names:
        view = views.get(name)
        if view is None or view.error in _UNKNOWN:
            return UnknownTopic(name)
        if view.error:
            return BrokerError(view.error, f"topic {name!r}")
        if not view.partitions:
            return BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r}")
    return None


async def pause(cluster: KafkaCluster, deadline: RetryDeadline, failure: ClientFailure) -> None:
    """Wait before another try, or raise why there is none."""
    healable = isinstance(failure, Unreachable | TimedOut | UnknownTopic) or (
        isinstance(failure, BrokerError) and failure.is_retriable
    )
    delay_s = cluster.settings.retry_backoff.delay_s(deadline.failed(), cluster.entropy)
    if not healable or not deadline.allows(delay_s):
        raise failure
    await asyncio.sleep(delay_s)


async def list_offsets(
    cluster: KafkaCluster, wanted: Mapping[TopicPartition, int], deadline: RetryDeadline
) -> dict[TopicPartition, int]:
    """The first offset at or after each time, or at either end; -1 where there is none.

    The times are milliseconds, `EARLIEST_MS` or `LATEST_MS`.
    """
    found: dict[TopicPartition, int] = {}
    is_again = False
    while True:
        missing = [place for place in wanted if place not in found]
        if not missing:
            return found
        names = sorted({place.topic for place in missing})
        views = await cluster.topics(names, fresh=is_again, timeout_s=deadline.left_s())
        leaders = _by_leader(missing, views)
        answers = await asyncio.gather(
            *(
                _list_at(cluster, leader, {place: wanted[place] for place in places}, deadline)
                for leader, places in leaders.items()
            )
        )
        failure: ClientFailure | None = None
        for offsets, failed in answers:
            found.update(offsets)
            failure = failure or failed
        if failure is not None:
            await pause(cluster, deadline, failure)
        is_again = True


def _by_leader(
    places: Iterable[TopicPartition], views: Mapping[str, TopicMetadata]
) -> dict[int, list[TopicPartition]]:
    """The partitions by their leader; those without one, or unknown, are under -1."""
    leaders = {
        TopicPartition(view.name, each.partition): each.leader
        for view in views.values()
        for each in view.partitions
    }
    found: dict[int, list[TopicPartition]] = {}
    for place in places:
        found.setdefault(leaders.get(place, -1), []).append(place)
    return found


async def _list_at(
    cluster: KafkaCluster,
    leader: int,
    wanted: Mapping[TopicPartition, int],
    deadline: RetryDeadline,
) -> tuple[dict[TopicPartition, int], ClientFailure | None]:
    """Ask one leader; what it knows, and what failed and may be asked again."""
    if leader < 0:
        about = f"{next(iter(wanted))}"
        return {}, BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, about)
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for place, timestamp in wanted.items():
        topics.setdefault(place.topic, []).append(
            ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp)
        )
    request = ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=int(cluster.settings.is_read_committed),
        topics=tuple(ListOffsetsTopic(name, tuple(each)) for name, each in topics.items()),
        timeout_ms=int(deadline.left_s() * 1000),
    )
    try:
        connection = await cluster.connection(leader)
        answer = await connection.call(request, ListOffsetsResponse, timeout_s=deadline.left_s())
    except (Unreachable, TimedOut) as failure:
        return {}, failure
    found: dict[TopicPartition, int] = {}
    failed: ClientFailure | None = None
    for topic in answer.topics:
        for each in topic.partitions:
            place = TopicPartition(topic.name, each.partition_index)
            if not each.error_code:
                found[place] = each.offset
            elif each.error_code in RETRIABLE:
                failed = BrokerError(each.error_code, f"{place}")
            else:
                raise BrokerError(each.error_code, f"{place}")
    if failed is None and len(found) < len(wanted):
        failed = Unreachable(f"broker {leader} left a partition out of ListOffsets")
    return found, failed


async def find_ends(
    cluster: KafkaCluster, places: Iterable[TopicPartition], deadline: RetryDeadline
) -> dict[TopicPartition, LogBounds]:
    """The first offset and the end of each log."""
    places = list(places)
    starts, ends = await asyncio.gather(
        list_offsets(cluster, dict.fromkeys(places, EARLIEST_MS), deadline),
        list_offsets(cluster, dict.fromkeys(places, LATEST_MS), deadline),
    )
    return {place: LogBounds(starts[place], max(starts[place], ends[place])) for place in places}


VERSION_MAX: Final = 9
"""The last versions of OffsetCommit and OffsetFetch that know topics by name."""

_MOVED: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


async def load_committed(
    cluster: KafkaCluster, group_id: str, places: Iterable[TopicPartition], deadline: RetryDeadline
) -> dict[TopicPartition, int]:
    """What the group committed; partitions without a commit are left out."""
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    asked = tuple(
        OffsetFetchRequestTopics(name=name, partition_indexes=tuple(each))
        for name, each in topics.items()
    )
    request = OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id, topics=asked),),
        require_stable=cluster.settings.is_read_committed,
        group_id=group_id,
        topics=tuple(OffsetFetchRequestTopic(each.name, each.partition_indexes) for each in asked),
    )
    while True:
        try:
            connection = await cluster.coordinator(group_id, timeout_s=deadline.left_s())
            answer = await connection.call(
                request, OffsetFetchResponse, timeout_s=deadline.left_s(), version_max=VERSION_MAX
            )
            return _parse_committed(answer, group_id)
        except (Unreachable, TimedOut, BrokerError) as failure:
            await _again(cluster, group_id, deadline, failure)


def _parse_committed(answer: OffsetFetchResponse, group_id: str) -> dict[TopicPartition, int]:
    code = answer.groups[0].error_code if answer.groups else answer.error_code
    if code:
        raise BrokerError(code, f"the commits of group {group_id!r}")
    found: dict[TopicPartition, int] = {}
    for topic in answer.groups[0].topics if answer.groups else answer.topics:
        for each in topic.partitions:
            place = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                raise BrokerError(each.error_code, f"the commit of group {group_id!r} in {place}")
            if each.committed_offset >= 0:
                found[place] = each.committed_offset
    return found


async def commit(
    cluster: KafkaCluster,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    deadline: RetryDeadline,
) -> None:
    """Commit these offsets, all of them or a failure that names the first that was refused."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for place, offset in offsets.items():
        topics.setdefault(place.topic, []).append(
            OffsetCommitRequestPartition(partition_index=place.partition, committed_offset=offset)
        )
    request = OffsetCommitRequest(
        group_id,
        topics=tuple(
            OffsetCommitRequestTopic(name=name, partitions=tuple(each))
            for name, each in topics.items()
        ),
    )
    while True:
        try:
            connection = await cluster.coordinator(group_id, timeout_s=deadline.left_s())
            answer = await connection.call(
                request, OffsetCommitResponse, timeout_s=deadline.left_s(), version_max=VERSION_MAX
            )
            _check_commit(answer, group_id)
        except (Unreachable, TimedOut, BrokerError) as failure:
            await _again(cluster, group_id, deadline, failure)
        else:
            return


def _check_commit(answer: OffsetCommitResponse, group_id: str) -> None:
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code:
                place = TopicPartition(topic.name, each.partition_index)
                raise BrokerError(each.error_code, f"the commit of group {group_id!r} in {place}")


async def _again(
    cluster: KafkaCluster, group_id: str, deadline: RetryDeadline, failure: ClientFailure
) -> None:
    """Wait for another try, or raise; a coordinator that moved is looked for again."""
    if not isinstance(failure, BrokerError) or failure.code in _MOVED:
        cluster.forget_coordinator(group_id)
    await pause(cluster, deadline, failure)
