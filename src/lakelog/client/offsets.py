"""Offsets that a cluster knows: where logs begin and end, where a time is, what a group committed.

Rules: every partition's leader is asked, and again after new metadata if it has moved; what a
repeat cannot heal is raised. Everything ends within the deadline it was given. With
`read_committed` a log ends at its last stable offset.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from lakelog.client.cluster import Cluster
from lakelog.client.deadline import Deadline
from lakelog.client.failures import (
    BadConfig,
    BrokerError,
    ClientFailure,
    OffsetGone,
    TimedOut,
    UnknownTopic,
    Unreachable,
)
from lakelog.client.metadata import TopicView
from lakelog.client.source_topic import COMMITTED, EARLIEST, LATEST, SourceTopic
from lakelog.model.errors import RETRIABLE, ErrorCode
from lakelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
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
class Span:
    """Where reading begins, and where the partition ended when that was found out."""

    start: int
    end: int


async def find_topics(
    cluster: Cluster, names: Iterable[str], deadline: Deadline
) -> dict[str, TopicView]:
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


def _first_failure(names: list[str], views: Mapping[str, TopicView]) -> ClientFailure | None:
    for name in names:
        view = views.get(name)
        if view is None or view.error in _UNKNOWN:
            return UnknownTopic(name)
        if view.error:
            return BrokerError(view.error, f"topic {name!r}")
        if not view.partitions:
            return BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r}")
    return None


async def pause(cluster: Cluster, deadline: Deadline, failure: ClientFailure) -> None:
    """Wait before another try, or raise why there is none."""
    healable = isinstance(failure, Unreachable | TimedOut | UnknownTopic) or (
        isinstance(failure, BrokerError) and failure.is_retriable
    )
    delay_s = cluster.settings.retry_backoff.delay_s(deadline.failed(), cluster.entropy)
    if not healable or deadline.left_s() <= delay_s:
        raise failure
    await asyncio.sleep(delay_s)


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], deadline: Deadline
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
    places: Iterable[TopicPartition], views: Mapping[str, TopicView]
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
    cluster: Cluster, leader: int, wanted: Mapping[TopicPartition, int], deadline: Deadline
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
    cluster: Cluster, places: Iterable[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, Span]:
    """The first offset and the end of each log."""
    places = list(places)
    starts, ends = await asyncio.gather(
        list_offsets(cluster, dict.fromkeys(places, EARLIEST_MS), deadline),
        list_offsets(cluster, dict.fromkeys(places, LATEST_MS), deadline),
    )
    return {place: Span(starts[place], max(starts[place], ends[place])) for place in places}


@dataclass(frozen=True, slots=True)
class StartPlan:
    """Everything that decides where one partition is read from."""

    place: TopicPartition
    policy: str
    log: Span
    found: int | None
    """What the group committed, or where the time is; None if there is neither."""
    reset: str


def start_offset(plan: StartPlan) -> int:
    """Where to begin; raises OffsetGone where a commit lies outside the log and nothing is said."""
    if plan.policy == EARLIEST:
        return plan.log.start
    if plan.policy == LATEST:
        return plan.log.end
    if plan.policy != COMMITTED:
        return plan.log.end if plan.found is None else min(plan.found, plan.log.end)
    if plan.found is None:
        return plan.log.end if plan.reset == LATEST else plan.log.start
    if plan.log.start <= plan.found <= plan.log.end:
        return plan.found
    if plan.reset in (EARLIEST, LATEST):
        return plan.log.start if plan.reset == EARLIEST else plan.log.end
    place = plan.place
    raise OffsetGone(place.topic, place.partition, plan.found, plan.log.start, plan.log.end)


def check_policies(topics: Iterable[SourceTopic], group_id: str) -> None:
    """A policy that needs a group needs its name."""
    for topic in topics:
        if topic.policy == COMMITTED and not group_id:
            raise BadConfig("group.id", f"is missing; topic {topic.name!r} is read as committed")


async def find_times(
    cluster: Cluster,
    topics: Iterable[SourceTopic],
    places: Iterable[TopicPartition],
    now_ms: int,
    deadline: Deadline,
) -> dict[TopicPartition, int]:
    """Where the times are that policies name; partitions without such a record are left out."""
    times = {topic.name: topic.start_ms(now_ms) for topic in topics}
    wanted = {place: time for place in places if (time := times[place.topic]) is not None}
    found = await list_offsets(cluster, wanted, deadline) if wanted else {}
    return {place: offset for place, offset in found.items() if offset >= 0}
