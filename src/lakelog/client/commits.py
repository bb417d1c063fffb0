"""What a group has committed, and committing to it without being a member of it.

Rules: a standalone consumer commits with generation -1 and no member id, which a coordinator takes
as long as the group has no members. Partitions are named, not numbered by topic id, so versions
stop before those that know only ids.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from lakelog.client.cluster import Cluster
from lakelog.client.deadline import Deadline
from lakelog.client.failures import BrokerError, ClientFailure, TimedOut, Unreachable
from lakelog.client.offsets import TopicPartition, pause
from lakelog.model.errors import ErrorCode
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

VERSION_MAX: Final = 9
"""The last versions of OffsetCommit and OffsetFetch that know topics by name."""

_MOVED: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


async def load_committed(
    cluster: Cluster, group_id: str, places: Iterable[TopicPartition], deadline: Deadline
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
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int], deadline: Deadline
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
    cluster: Cluster, group_id: str, deadline: Deadline, failure: ClientFailure
) -> None:
    """Wait for another try, or raise; a coordinator that moved is looked for again."""
    if not isinstance(failure, BrokerError) or failure.code in _MOVED:
        cluster.forget_coordinator(group_id)
    await pause(cluster, deadline, failure)
