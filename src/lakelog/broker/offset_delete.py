"""OffsetDelete (47), version 0.

Forgets committed offsets. An unknown group is 69 and an empty group id 24, at the top and without
topics; an unknown topic or partition 3; what live members subscribe to is 86, judged where the
deletion is applied (row 95). Ignored: nothing.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Answer, Call, Endpoint, Later, answered
from lakelog.broker.errors import Attempt
from lakelog.broker.lookup import TopicFinder, check_count
from lakelog.groups.events import DeleteOffsets, GroupOutcome, OffsetsDeleted
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.topic import Topic


async def handle(broker: "Broker", call: Call, request: OffsetDeleteRequest) -> Answer | Later:
    """Forget the offsets of each partition."""
    del call
    check_count(topic.partitions for topic in request.topics)
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    deletion = _Deletion(request)
    finder = TopicFinder(broker, Attempt.COORDINATING)
    async for part in broker.loop_turn.parts(request.topics):
        for topic in part:
            asked = (partition.partition_index for partition in topic.partitions)
            found = await finder.find(topic.name, asked)
            deletion.add(topic, found, finder.no_partition)
    # Also with nothing left to forget: an unknown group is told.
    event = DeleteOffsets(request.group_id, tuple(deletion.partitions))
    return answered(broker.groups.submit(event), deletion.response)


@dataclass(slots=True)
class _Deletion:
    """One OffsetDelete request: what is left to forget, and the codes of what is not.

    `codes` has one for each partition of the request; None for one that is in `partitions`.
    """

    request: OffsetDeleteRequest
    partitions: list[tuple[bytes, str, int]] = field(default_factory=list)
    codes: list[list[ErrorCode | None]] = field(default_factory=list)

    def add(
        self, topic: OffsetDeleteRequestTopic, found: "Topic | ErrorCode", missing: ErrorCode
    ) -> None:
        """Take in the partitions of a topic, or the code for all of them, or for those it lacks."""
        codes: list[ErrorCode | None] = []
        for partition in topic.partitions:
            index = partition.partition_index
            if isinstance(found, ErrorCode):
                codes.append(found)
            elif found.stream(index) is None:
                codes.append(missing)
            else:
                codes.append(None)
                self.partitions.append((found.id, found.name, index))
        self.codes.append(codes)

    def response(self, outcome: GroupOutcome | ErrorCode) -> OffsetDeleteResponse:
        """The answer when the deletion of what was left was judged so."""
        if isinstance(outcome, ErrorCode):
            return OffsetDeleteResponse(error_code=outcome)
        assert isinstance(outcome, OffsetsDeleted), outcome
        if outcome.code:
            return OffsetDeleteResponse(error_code=outcome.code)
        judged = iter(outcome.codes)
        return OffsetDeleteResponse(
            topics=tuple(
                OffsetDeleteResponseTopic(
                    topic.name,
                    tuple(
                        OffsetDeleteResponsePartition(
                            partition.partition_index, next(judged) if code is None else code
                        )
                        for partition, code in zip(topic.partitions, codes, strict=True)
                    ),
                )
                for topic, codes in zip(self.request.topics, self.codes, strict=True)
            )
        )


API: Final = Endpoint(ApiKey.OFFSET_DELETE, range(1), handle)
