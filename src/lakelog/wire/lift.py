"""Old shapes to new and back, for three APIs in which one became a list.

`lift` runs in the handler behind `decode`, `lower` before `encode`: so a handler of FindCoordinator
(keys from 4 on), LeaveGroup (members from 3 on) and OffsetFetch (groups from 8 on) knows only the
newest shape. Other APIs need neither: a field that a version lacks reads as its default and is not
written, and what else moved is one line of its handler.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from lakelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lakelog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from lakelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

Message = TypeVar("Message", bound=Struct)

NO_OFFSET = -1


def lift(message: Message, version: int) -> Message:
    """A decoded request in its newest shape."""
    entry = LIFTS.get(type(message))
    if entry is None or version >= entry[0]:
        return message
    return cast("Message", entry[1](message, version))


def lower(message: Message, version: int, request: Struct | None = None) -> Message:
    """A response as its version wants it; `request` is the lifted request it answers.

    Only OffsetFetch 1 looks at the request: it has no place for a group's error but the partitions
    that were asked for.
    """
    entry = LOWERS.get(type(message))
    if entry is None or version >= entry[0]:
        return message
    return cast("Message", entry[1](message, version, request))


def _lift_find_coordinator(message: Struct, _version: int) -> Struct:
    assert isinstance(message, FindCoordinatorRequest)
    return replace(message, coordinator_keys=(message.key,))


def _lift_leave_group(message: Struct, _version: int) -> Struct:
    assert isinstance(message, LeaveGroupRequest)
    return replace(message, members=(MemberIdentity(member_id=message.member_id),))


def _lift_offset_fetch(message: Struct, _version: int) -> Struct:
    assert isinstance(message, OffsetFetchRequest)
    topics = None
    if message.topics is not None:
        topics = tuple(
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in message.topics
        )
    group = OffsetFetchRequestGroup(group_id=message.group_id, topics=topics)
    return replace(message, groups=(group,))


def _lower_find_coordinator(message: Struct, _version: int, _request: Struct | None) -> Struct:
    assert isinstance(message, FindCoordinatorResponse)
    if not message.coordinators:
        return message  # the handler answered in the old shape: an error for the whole request
    only = message.coordinators[0]
    return replace(
        message,
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _lower_leave_group(message: Struct, _version: int, _request: Struct | None) -> Struct:
    assert isinstance(message, LeaveGroupResponse)
    if message.error_code or not message.members:
        return message
    return replace(message, error_code=message.members[0].error_code)


def _lower_offset_fetch(message: Struct, version: int, request: Struct | None) -> Struct:
    assert isinstance(message, OffsetFetchResponse)
    if not message.groups:
        return message
    group = message.groups[0]
    if version == 1 and group.error_code:
        assert isinstance(request, OffsetFetchRequest)
        return replace(message, topics=_failed_topics(request, group.error_code))
    return replace(message, topics=_old_topics(group), error_code=group.error_code)


def _old_topics(group: OffsetFetchResponseGroup) -> tuple[OffsetFetchResponseTopic, ...]:
    return tuple(
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
                for partition in topic.partitions
            ),
        )
        for topic in group.topics
    )


def _failed_topics(
    request: OffsetFetchRequest, error_code: int
) -> tuple[OffsetFetchResponseTopic, ...]:
    return tuple(
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=NO_OFFSET, error_code=error_code
                )
                for index in topic.partition_indexes
            ),
        )
        for topic in request.topics or ()
    )


LIFTS: dict[type[Struct], tuple[int, Callable[[Struct, int], Struct]]] = {
    FindCoordinatorRequest: (4, _lift_find_coordinator),
    LeaveGroupRequest: (3, _lift_leave_group),
    OffsetFetchRequest: (8, _lift_offset_fetch),
}
"""By request: the version from which on nothing has to be moved, and the move before it."""

LOWERS: dict[type[Struct], tuple[int, Callable[[Struct, int, Struct | None], Struct]]] = {
    FindCoordinatorResponse: (4, _lower_find_coordinator),
    LeaveGroupResponse: (3, _lower_leave_group),
    OffsetFetchResponse: (8, _lower_offset_fetch),
}
"""By response: the version from which on nothing has to be moved, and the move before it."""
