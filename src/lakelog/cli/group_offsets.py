"""The committed offsets of a group: read, written, and set beside what the log holds."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Final, TypeAlias

from lakelog.cli.cluster import MOVING, Cluster, Topic, has_id
from lakelog.cli.conversation import check
from lakelog.cli.group_lag import Position, TopicPartition
from lakelog.cli.partition_offsets import extents
from lakelog.cli.unread import first_unread
from lakelog.server.client import Client, KafkaFailure
from lakelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from lakelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

NOT_COMMITTED: Final = -1

_Committed: TypeAlias = tuple[OffsetFetchResponsePartition | OffsetFetchResponsePartitions, ...]


async def committed_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """What a group has committed, by partition; a group that is not there has committed nothing."""

    async def ask(client: Client) -> OffsetFetchResponse:
        wanted = OffsetFetchRequestGroup(group, topics=None)
        request = OffsetFetchRequest((wanted,), group_id=group, topics=None)
        answer = await client.call(request, OffsetFetchResponse)
        check(answer.error_code, about=group)
        for each in answer.groups:
            check(each.error_code, about=group)
        return answer

    _, answer = await cluster.at_coordinator(group, ask)
    if not answer.groups:  # one group before v8
        return _offsets((topic.name, topic.partitions) for topic in answer.topics)
    topics = answer.groups[0].topics
    # From v10 on topics have ids only; what has no name any more was deleted just now.
    ids = [topic.topic_id for topic in topics if has_id(topic.topic_id)]
    names = {topic.id: topic.name for topic in (await cluster.topics(ids=ids)).values()}
    return _offsets((names.get(topic.topic_id, topic.name), topic.partitions) for topic in topics)


async def commit_offsets(
    cluster: Cluster, group: str, topics: Mapping[str, Topic], offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Commit as an administrator, for no member and no generation; returns the refusals' codes."""
    request = OffsetCommitRequest(group, topics=_by_topic(topics, offsets))

    async def ask(client: Client) -> dict[TopicPartition, int]:
        answer = await client.call(request, OffsetCommitResponse)
        names = {topic.id: topic.name for topic in topics.values()}
        refused = {}
        for topic in answer.topics:
            name = names.get(topic.topic_id, "") if has_id(topic.topic_id) else topic.name
            for each in topic.partitions:
                if each.error_code in MOVING:
                    raise KafkaFailure(each.error_code, about=group)
                if each.error_code:
                    refused[TopicPartition(name, each.partition_index)] = each.error_code
        return refused

    _, refused = await cluster.at_coordinator(group, ask)
    return refused


async def positions(
    cluster: Cluster,
    topics: Mapping[str, Topic],
    committed: Mapping[TopicPartition, int],
    wanted: Iterable[TopicPartition],
) -> list[Position]:
    """Where a group stands in each of these partitions, in order; how old it is, is not asked."""
    wanted = sorted(set(wanted))
    held = await extents(cluster, topics, wanted)
    found = []
    for at in wanted:
        position = Position(at, committed.get(at))
        extent = held[at]
        if isinstance(extent, str):
            found.append(replace(position, trouble=extent))
        else:
            found.append(replace(position, start=extent.start, end=extent.end))
    return found


async def dated(
    cluster: Cluster, topics: Mapping[str, Topic], found: Iterable[Position]
) -> list[Position]:
    """The same positions with the time of the first record that is left to read."""
    found = list(found)
    unread = {each.at: each.unread for each in found if each.unread}
    times_ms = await first_unread(cluster, topics, unread)
    return [
        replace(
            each,
            unread_ms=times_ms.get(each.at),
            only_markers=each.at in times_ms and times_ms[each.at] is None,
        )
        for each in found
    ]


def _offsets(topics: Iterable[tuple[str, _Committed]]) -> dict[TopicPartition, int]:
    found = {}
    for name, partitions in topics:
        for each in partitions:
            check(each.error_code, about=f"{name}, partition {each.partition_index}")
            if name and each.committed_offset != NOT_COMMITTED:
                found[TopicPartition(name, each.partition_index)] = each.committed_offset
    return found


def _by_topic(
    topics: Mapping[str, Topic], offsets: Mapping[TopicPartition, int]
) -> tuple[OffsetCommitRequestTopic, ...]:
    return tuple(
        OffsetCommitRequestTopic(
            topics[name].id,
            tuple(OffsetCommitRequestPartition(at.partition, offsets[at]) for at in group),
            name,
        )
        for name, group in groupby(sorted(offsets), key=lambda at: at.topic)
    )
