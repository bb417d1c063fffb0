"""What is asked of a whole cluster: where logs begin and end, where a time is, what groups commit.

Rules:

- Every partition's leader is asked, and again after new metadata if it has moved; what a repeat
  cannot heal is raised. Everything ends within the deadline it was given. With `read_committed` a
  log ends at its last stable offset.
- A group's coordinator is asked again while it moves or loads: it has done nothing yet.
- A standalone consumer, and an administrator, commits with generation -1 and no member id, which a
  coordinator takes as long as the group has no members. Partitions are named, not numbered by topic
  id, so versions stop before those that know only ids.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

from lakelog.kafka_client.cluster import COORDINATOR_MOVED, KafkaCluster
from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.failures import (
    BrokerError,
    ClientFailure,
    TimedOut,
    UnknownTopic,
    Unreachable,
)
from lakelog.kafka_client.metadata import NO_LEADER, TopicMetadata
from lakelog.model.errors import ErrorCode
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

ResultT = TypeVar("ResultT")

EARLIEST_MS: Final = -2
LATEST_MS: Final = -1
CONSUMER: Final = -1
UNKNOWN_TRIES: Final = 4
"""A topic that was just made is unknown to some brokers for a moment."""

VERSION_MAX: Final = 9
"""The last versions of OffsetCommit and OffsetFetch that know topics by name."""

_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class TopicPartition(NamedTuple):
    """One partition by name; they sort as people list them."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic} [{self.partition}]"


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Where reading begins, and where the partition ended when that was found out."""

    start: int
    end: int


OffsetOrFailure: TypeAlias = int | ClientFailure
"""An offset that a leader told, or why it is not known."""


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
    delay_s = cluster.settings.retry_backoff.delay_s(deadline.failed(), cluster.entropy)
    if not _is_healable(failure) or not deadline.allows(delay_s):
        raise failure
    await asyncio.sleep(delay_s)


def _is_healable(failure: ClientFailure) -> bool:
    if isinstance(failure, BrokerError):
        return failure.is_retriable
    return isinstance(failure, Unreachable | TimedOut | UnknownTopic)


async def list_offsets(
    cluster: KafkaCluster, wanted: Mapping[TopicPartition, int], deadline: RetryDeadline
) -> dict[TopicPartition, int]:
    """The first offset at or after each time, or at either end; -1 where there is none.

    The times are milliseconds, `EARLIEST_MS` or `LATEST_MS`.
    """
    found: dict[TopicPartition, int] = {}
    is_again = False
    while True:
        missing = {place: time for place, time in wanted.items() if place not in found}
        if not missing:
            return found
        outcomes = await ask_offsets(cluster, missing, deadline, fresh=is_again)
        failure: ClientFailure | None = None
        for place, outcome in outcomes.items():
            if isinstance(outcome, int):
                found[place] = outcome
            elif not _is_healable(outcome):
                raise outcome
            else:
                failure = failure or outcome
        if failure is not None:
            await pause(cluster, deadline, failure)
        is_again = True


async def ask_offsets(
    cluster: KafkaCluster,
    wanted: Mapping[TopicPartition, int],
    deadline: RetryDeadline,
    *,
    fresh: bool = False,
) -> dict[TopicPartition, OffsetOrFailure]:
    """The same, asked once: a partition that cannot be asked does not stop the others."""
    names = sorted({place.topic for place in wanted})
    views = await cluster.topics(names, fresh=fresh, timeout_s=deadline.left_s())
    answers = await asyncio.gather(
        *(
            _ask_leader(cluster, leader, {place: wanted[place] for place in places}, deadline)
            for leader, places in by_leader(wanted, views).items()
        )
    )
    return {place: outcome for answer in answers for place, outcome in answer.items()}


def by_leader(
    places: Iterable[TopicPartition], views: Mapping[str, TopicMetadata]
) -> dict[int, list[TopicPartition]]:
    """The partitions by their leader; those without one, or unknown, are under -1."""
    leaders = {
        TopicPartition(name, number): leader
        for name, view in views.items()
        for number, leader in view.leaders.items()
    }
    found: dict[int, list[TopicPartition]] = {}
    for place in places:
        found.setdefault(leaders.get(place, NO_LEADER), []).append(place)
    return found


async def _ask_leader(
    cluster: KafkaCluster,
    leader: int,
    wanted: Mapping[TopicPartition, int],
    deadline: RetryDeadline,
) -> dict[TopicPartition, OffsetOrFailure]:
    """Ask one leader for what it leads."""
    if leader == NO_LEADER:
        return {place: BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{place}") for place in wanted}
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for place, timestamp in wanted.items():
        topics.setdefault(place.topic, []).append(
            ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp)
        )
    request = ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=int(cluster.settings.is_read_committed),
        topics=tuple(ListOffsetsTopic(name, tuple(some)) for name, some in topics.items()),
        timeout_ms=int(deadline.left_s() * 1000),
    )
    try:
        connection = await cluster.connection(leader)
        answer = await connection.call(request, ListOffsetsResponse, timeout_s=deadline.left_s())
    except (Unreachable, TimedOut) as failure:
        return dict.fromkeys(wanted, failure)
    left_out = Unreachable(f"broker {leader} left a partition out of ListOffsets")
    found: dict[TopicPartition, OffsetOrFailure] = dict.fromkeys(wanted, left_out)
    for topic in answer.topics:
        for partition in topic.partitions:
            place = TopicPartition(topic.name, partition.partition_index)
            code = partition.error_code
            found[place] = BrokerError(code, f"{place}") if code else partition.offset
    return found


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


async def at_coordinator(
    cluster: KafkaCluster,
    group_id: str,
    ask: Callable[[BrokerConnection], Awaitable[ResultT]],
    deadline: RetryDeadline,
) -> ResultT:
    """Ask a group's coordinator, again while it moves, loads or is not there.

    `ask` may so be carried out twice: it must be one that does no harm twice.
    """
    while True:
        try:
            return await ask(await cluster.coordinator(group_id, timeout_s=deadline.left_s()))
        except (Unreachable, TimedOut, BrokerError) as failure:
            if not isinstance(failure, BrokerError) or failure.code in COORDINATOR_MOVED:
                cluster.forget_coordinator(group_id)
            await pause(cluster, deadline, failure)


async def load_committed(
    cluster: KafkaCluster,
    group_id: str,
    places: Iterable[TopicPartition] | None,
    deadline: RetryDeadline,
) -> dict[TopicPartition, int]:
    """What the group committed, or all of it (None); partitions without a commit are left out."""
    asked: tuple[OffsetFetchRequestTopics, ...] | None = None
    if places is not None:
        topics: dict[str, list[int]] = {}
        for place in places:
            topics.setdefault(place.topic, []).append(place.partition)
        asked = tuple(
            OffsetFetchRequestTopics(name=name, partition_indexes=tuple(some))
            for name, some in topics.items()
        )
    named = None
    if asked is not None:
        named = tuple(
            OffsetFetchRequestTopic(topic.name, topic.partition_indexes) for topic in asked
        )
    request = OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id, topics=asked),),
        require_stable=cluster.settings.is_read_committed,
        group_id=group_id,
        topics=named,
    )

    async def ask(connection: BrokerConnection) -> dict[TopicPartition, int]:
        answer = await connection.call(
            request, OffsetFetchResponse, timeout_s=deadline.left_s(), version_max=VERSION_MAX
        )
        return _parse_committed(answer, group_id)

    return await at_coordinator(cluster, group_id, ask, deadline)


def _parse_committed(answer: OffsetFetchResponse, group_id: str) -> dict[TopicPartition, int]:
    code = answer.groups[0].error_code if answer.groups else answer.error_code
    if code:
        raise BrokerError(code, f"the commits of group {group_id!r}")
    found: dict[TopicPartition, int] = {}
    for topic in answer.groups[0].topics if answer.groups else answer.topics:
        for partition in topic.partitions:
            place = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code:
                about = f"the commit of group {group_id!r} in {place}"
                raise BrokerError(partition.error_code, about)
            if partition.committed_offset >= 0:
                found[place] = partition.committed_offset
    return found


async def commit(
    cluster: KafkaCluster,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    deadline: RetryDeadline,
) -> None:
    """Commit these offsets, all of them or a failure that names the first that was refused."""
    for place, code in (await try_commit(cluster, group_id, offsets, deadline)).items():
        raise BrokerError(code, f"the commit of group {group_id!r} in {place}")


async def try_commit(
    cluster: KafkaCluster,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    deadline: RetryDeadline,
) -> dict[TopicPartition, int]:
    """Commit these offsets; returns the codes of those that were refused."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for place, offset in offsets.items():
        topics.setdefault(place.topic, []).append(
            OffsetCommitRequestPartition(partition_index=place.partition, committed_offset=offset)
        )
    request = OffsetCommitRequest(
        group_id,
        topics=tuple(
            OffsetCommitRequestTopic(name=name, partitions=tuple(some))
            for name, some in topics.items()
        ),
    )

    async def ask(connection: BrokerConnection) -> dict[TopicPartition, int]:
        answer = await connection.call(
            request, OffsetCommitResponse, timeout_s=deadline.left_s(), version_max=VERSION_MAX
        )
        return _parse_refused(answer, group_id)

    return await at_coordinator(cluster, group_id, ask, deadline)


def _parse_refused(answer: OffsetCommitResponse, group_id: str) -> dict[TopicPartition, int]:
    """The refusals that a repeat does not heal; raises the others."""
    refused: dict[TopicPartition, int] = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code:
                place = TopicPartition(topic.name, partition.partition_index)
                refused[place] = partition.error_code
                about = f"the commit of group {group_id!r} in {place}"
                failure = BrokerError(partition.error_code, about)
                if failure.is_retriable:
                    raise failure
    return refused
