"""Members of consumer groups, as clients of a stage."""

from collections.abc import Mapping

from tests.broker.group_stage import GroupStage

from lakelog.model.ids import TopicId
from lakelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)


def join_request(
    member_id: str,
    *names: str,
    group_id: str = "k",
    instance_id: str | None = None,
    rack_id: str | None = None,
) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id,
        member_id,
        0,
        instance_id,
        rack_id,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=names,
    )


def beat_request(
    member_id: str,
    epoch: int,
    owned: Mapping[TopicId, tuple[int, ...]] | None = None,
    *,
    group_id: str = "k",
    instance_id: str | None = None,
) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat that says nothing new but perhaps what the member has."""
    topics = None
    if owned is not None:
        topics = tuple(
            ConsumerGroupHeartbeatRequestTopicPartitions(topic, partitions)
            for topic, partitions in owned.items()
        )
    return ConsumerGroupHeartbeatRequest(
        group_id, member_id, epoch, instance_id, topic_partitions=topics
    )


async def beat(
    stage: GroupStage, request: ConsumerGroupHeartbeatRequest, version: int = 1
) -> ConsumerGroupHeartbeatResponse:
    return await stage.ask(request, ConsumerGroupHeartbeatResponse, version)


def assigned(answer: ConsumerGroupHeartbeatResponse) -> dict[TopicId, tuple[int, ...]] | None:
    """What an answer assigns; None for unchanged."""
    if answer.assignment is None:
        return None
    return {
        TopicId(topic.topic_id): topic.partitions for topic in answer.assignment.topic_partitions
    }
