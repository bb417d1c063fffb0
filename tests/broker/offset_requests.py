"""Requests about committed offsets, and what their answers say."""

from tests.broker.group_stage import GroupStage

from lakelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from lakelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)


def commit_request(
    *partitions: OffsetCommitRequestPartition,
    topic: str = "t",
    group_id: str = "g",
    member_id: str = "",
    generation: int = -1,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id,
        generation,
        member_id,
        topics=(OffsetCommitRequestTopic(name=topic, partitions=partitions),),
    )


def offset(
    partition: int, value: int, metadata: str | None = "", *, epoch: int = -1
) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(partition, value, epoch, metadata)


async def commit(stage: GroupStage, request: OffsetCommitRequest, version: int = 9) -> list[int]:
    """The codes of a commit's partitions."""
    answer = await stage.ask(request, OffsetCommitResponse, version)
    assert [topic.name for topic in answer.topics] == [topic.name for topic in request.topics]
    return [row.error_code for topic in answer.topics for row in topic.partitions]


def fetch_request(
    group_id: str = "g", *, member_id: str | None = None, epoch: int = -1, **topics: tuple[int, ...]
) -> OffsetFetchRequest:
    """Ask for these partitions; without topics for all there are."""
    named = tuple(
        OffsetFetchRequestTopics(name=name, partition_indexes=partitions)
        for name, partitions in topics.items()
    )
    group = OffsetFetchRequestGroup(group_id, member_id, epoch, named or None)
    return OffsetFetchRequest(groups=(group,))


async def fetch(stage: GroupStage, request: OffsetFetchRequest, version: int = 9) -> "Fetched":
    """What one group has committed; it must be no error."""
    answer = await stage.ask(request, OffsetFetchResponse, version)
    (group,) = answer.groups
    assert group.error_code == 0
    return offsets_of(group)


Fetched = dict[tuple[str, int], tuple[int, str]]


def offsets_of(group: OffsetFetchResponseGroup) -> Fetched:
    """Offset and metadata by topic and partition; no partition has an error."""
    assert {row.error_code for topic in group.topics for row in topic.partitions} <= {0}
    return {
        (topic.name, row.partition_index): (row.committed_offset, row.metadata or "")
        for topic in group.topics
        for row in topic.partitions
    }
