"""ConsumerGroupDescribe (69), versions 0 and 1.

Groups of the consumer protocol (KIP-848). One that there is not, or that is of the classic
protocol, is 69, and Java then asks DescribeGroups (row 76); the empty group id is 24. Topics are
told by name and id; deleted ones are left out. From v1 on members have a type: 1, the consumer
protocol. Operations are answered when asked for, except with an error. A group that stands twice
is described once. Ignored: nothing.

Each group is told after a proof of currency for its domain and for the topics; without one it
is 15.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import NO_OPERATIONS, Call, Endpoint
from lakelog.broker.lookup import GROUP_OPERATIONS, describe_each, topic_of
from lakelog.groups import consumer
from lakelog.groups.state import ConsumerGroup, ConsumerMember, Group
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

CONSUMER_MEMBER: Final = 1


async def handle(
    broker: "Broker", call: Call, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each group."""
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NO_OPERATIONS

    def describe(
        group_id: str, group: Group | None, is_current: bool
    ) -> ConsumerGroupDescribeDescribedGroup:
        if not group_id:
            return _failed(group_id, ErrorCode.INVALID_GROUP_ID)
        if not is_current:
            return _failed(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if isinstance(group, ConsumerGroup):
            return _described(broker, group, operations)
        problem = "not found" if group is None else "is not a consumer group"
        reason = f"Group {group_id} {problem}."
        return _failed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, reason)

    groups = await describe_each(broker, call, request.group_ids, describe, tells_topics=True)
    return ConsumerGroupDescribeResponse(groups=groups)


def _failed(
    group_id: str, code: ErrorCode, reason: str | None = None
) -> ConsumerGroupDescribeDescribedGroup:
    return ConsumerGroupDescribeDescribedGroup(
        error_code=code, error_message=reason, group_id=group_id
    )


def _described(
    broker: "Broker", group: ConsumerGroup, operations: int
) -> ConsumerGroupDescribeDescribedGroup:
    return ConsumerGroupDescribeDescribedGroup(
        group_id=group.group_id,
        group_state=consumer.state_name(group),
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=consumer.preferred_assignor(
            group, broker.groups.options.consumer_assignors[0]
        ),
        members=tuple(_member(broker, group, member) for member in group.members.values()),
        authorized_operations=operations,
    )


def _member(
    broker: "Broker", group: ConsumerGroup, member: ConsumerMember
) -> ConsumerGroupDescribeMember:
    return ConsumerGroupDescribeMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.names,
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(broker, _held(member)),
        target_assignment=_assignment(broker, group.target.get(member.member_id, {})),
        member_type=CONSUMER_MEMBER,
    )


def _held(member: ConsumerMember) -> dict[bytes, list[int]]:
    """What the member has: what it may keep, and what it is still to let go of."""
    held: dict[bytes, list[int]] = {}
    for shares in (member.assigned, member.revoking):
        for topic_id, partitions in shares.items():
            held.setdefault(topic_id, []).extend(partitions)
    return held


def _assignment(
    broker: "Broker", shares: Mapping[bytes, Iterable[int]]
) -> ConsumerGroupDescribeAssignment:
    told = []
    for topic_id, partitions in shares.items():
        topic = topic_of(broker, topic_id)
        if topic is not None:
            told.append(
                ConsumerGroupDescribeTopicPartitions(
                    topic_id, topic.name, tuple(sorted(partitions))
                )
            )
    return ConsumerGroupDescribeAssignment(topic_partitions=tuple(told))


API: Final = Endpoint(ApiKey.CONSUMER_GROUP_DESCRIBE, range(2), handle)
