"""ConsumerGroupHeartbeat (68), versions 0 and 1.

A member of a consumer group (KIP-848) joins, lives, lets go of partitions and leaves with one
request. Null fields and -1 mean "as before". v1 has subscriptions by pattern, and its members bring
their own id. Ignored: nothing.

An answer with an error has only its code and message. One to a member that leaves has the interval
0, every other one how often to come back (row 90), as the group or else the operator chose.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Answer, Call, Endpoint, Later, answered, client_host, client_id
from lakelog.broker.lookup import check_count
from lakelog.coordinator.requests import ConsumerHeartbeatRequest
from lakelog.groups.events import ConsumerHeartbeatResult, Owned
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker


async def handle(
    broker: "Broker", call: Call, request: ConsumerGroupHeartbeatRequest
) -> Answer | Later:
    """Take in what a member says and tell it what it shall have."""
    check_count([topic.partitions for topic in request.topic_partitions or ()])
    ask = ConsumerHeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        names=request.subscribed_topic_names,
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_owned(request),
        api_version=call.version,
        client_id=client_id(call),
        client_host=client_host(call),
    )
    interval_ms = broker.groups.settings.of(request.group_id).heartbeat_interval_ms
    return answered(broker.groups.beat(ask), partial(_response, interval_ms))


def _owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    return tuple((topic.topic_id, topic.partitions) for topic in request.topic_partitions)


def _response(interval_ms: int, answer: ConsumerHeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    if answer.code:
        return ConsumerGroupHeartbeatResponse(error_code=answer.code, error_message=answer.reason)
    has_left = answer.epoch < 0
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=0 if has_left else interval_ms,
        assignment=None if answer.assignment is None else _assignment(answer.assignment),
    )


def _assignment(shares: Owned) -> ConsumerGroupHeartbeatAssignment:
    return ConsumerGroupHeartbeatAssignment(
        topic_partitions=tuple(
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id, partitions)
            for topic_id, partitions in shares
        )
    )


API: Final = Endpoint(ApiKey.CONSUMER_GROUP_HEARTBEAT, range(2), handle)
