"""The requests about committed offsets as scripts write them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.golden.groups.stage import Ask

from lakelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from lakelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from lakelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from lakelog.wire.schema import ZERO_UUID

Topic = str | bytes
"""A topic by its name, or by its id where a version wants that."""


@dataclass(frozen=True, slots=True)
class At:
    """An offset to be committed for one partition."""

    topic: Topic
    partition: int
    offset: int
    metadata: str | None = "m"
    leader_epoch: int = -1


def commit(
    group: str,
    epoch: int,
    member: str,
    *offsets: At,
    version: int = 9,
    instance: str | None = None,
    retention_ms: int = -1,
) -> Ask[OffsetCommitResponse]:
    """OffsetCommit; offsets of one topic in a row go together."""
    topics: list[OffsetCommitRequestTopic] = []
    rows: list[tuple[Topic, list[OffsetCommitRequestPartition]]] = []
    for each in offsets:
        if not rows or rows[-1][0] != each.topic:
            rows.append((each.topic, []))
        partition = OffsetCommitRequestPartition(
            each.partition, each.offset, each.leader_epoch, each.metadata
        )
        rows[-1][1].append(partition)
    for topic, partitions in rows:
        name, topic_id = _either(topic)
        topics.append(OffsetCommitRequestTopic(topic_id, tuple(partitions), name))
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        group_instance_id=instance,
        topics=tuple(topics),
        retention_time_ms=retention_ms,
    )
    return Ask(request, OffsetCommitResponse, version)


def _either(topic: Topic) -> tuple[str, bytes]:
    return (topic, ZERO_UUID) if isinstance(topic, str) else ("", topic)


@dataclass(frozen=True, slots=True)
class Of:
    """What is asked about one group: partitions by topic, or everything."""

    group: str
    topics: Mapping[str, Iterable[int]] | Mapping[bytes, Iterable[int]] | None = None
    member: str | None = None
    epoch: int = -1


def offsets(*groups: Of, version: int = 9, stable: bool = False) -> Ask[OffsetFetchResponse]:
    """OffsetFetch: one group before version 8."""
    first = groups[0]
    old = None
    if first.topics is not None:
        old = tuple(
            OffsetFetchRequestTopic(str(topic), tuple(partitions))
            for topic, partitions in first.topics.items()
        )
    request = OffsetFetchRequest(
        groups=tuple(map(_group, groups)),
        require_stable=stable,
        group_id=first.group,
        topics=old,
    )
    return Ask(request, OffsetFetchResponse, version)


def _group(asked: Of) -> OffsetFetchRequestGroup:
    topics = None
    if asked.topics is not None:
        topics = tuple(
            OffsetFetchRequestTopics(_either(topic)[1], tuple(partitions), _either(topic)[0])
            for topic, partitions in asked.topics.items()
        )
    return OffsetFetchRequestGroup(asked.group, asked.member, asked.epoch, topics)


def forget(group: str, topics: Mapping[str, Iterable[int]]) -> Ask[OffsetDeleteResponse]:
    """OffsetDelete."""
    request = OffsetDeleteRequest(
        group,
        tuple(
            OffsetDeleteRequestTopic(
                topic, tuple(OffsetDeleteRequestPartition(each) for each in partitions)
            )
            for topic, partitions in topics.items()
        ),
    )
    return Ask(request, OffsetDeleteResponse, 0)
