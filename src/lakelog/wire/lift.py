"""Old shapes to new and back, so that a handler knows only the newest shape of its API.

`lift` runs behind `decode`, `lower` before `encode`. Most fields need neither: one that a version
lacks reads as its default and is not written. Here is only what moved to another place:

- FindCoordinator (keys from 4 on), LeaveGroup (members from 3 on), OffsetFetch (groups from 8 on),
  DeleteTopics (topics from 6 on): one became a list.
- Fetch: the replica id moved into the replica state (15). JoinGroup 0 has no rebalance time-out of
  its own and takes the session's.

Where names gave way to ids (Fetch, Produce, OffsetCommit, OffsetFetch) both fields stay: which one
counts is the handler's business.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from lakelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from lakelog.wire.messages.fetch import FetchReplicaState, FetchRequest
from lakelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lakelog.wire.messages.join_group import JoinGroupRequest
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


def _lift_delete_topics(message: Struct, _version: int) -> Struct:
    assert isinstance(message, DeleteTopicsRequest)
    return replace(message, topics=tuple(DeleteTopicState(name) for name in message.topic_names))


def _lift_fetch(message: Struct, _version: int) -> Struct:
    assert isinstance(message, FetchRequest)
    if message.replica_id == message.replica_state.replica_id:
        return message
    return replace(message, replica_state=FetchReplicaState(replica_id=message.replica_id))


def _lift_join_group(message: Struct, _version: int) -> Struct:
    assert isinstance(message, JoinGroupRequest)
    return replace(message, rebalance_timeout_ms=message.session_timeout_ms)


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
    DeleteTopicsRequest: (6, _lift_delete_topics),
    FetchRequest: (15, _lift_fetch),
    FindCoordinatorRequest: (4, _lift_find_coordinator),
    JoinGroupRequest: (1, _lift_join_group),
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
