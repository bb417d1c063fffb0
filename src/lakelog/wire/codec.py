"""Messages to bytes and back, in any version, and old shapes to new ones.

Nothing but `ProtocolError` leaves `decode`, whatever the bytes are. Record bytes are never copied:
they come in as views of the frame and leave as parts of their own. Bytes behind the message are
ignored, as Kafka does.

What consumers put into the opaque bytes of a classic group: subscriptions and assignments. The
bytes belong to the members: a group of another protocol type than "consumer" holds anything. A
version (INT16) stands before the message. A version newer than ours is read as our newest, because
fields are only ever added at the end.

`lift` runs in the handler behind `decode`, `lower` before `encode`: so a handler of FindCoordinator
(keys from 4 on), LeaveGroup (members from 3 on) and OffsetFetch (groups from 8 on) knows only the
newest shape. Other APIs need neither: a field that a version lacks reads as its default and is not
written, and what else moved is one line of its handler.
"""

import struct
from collections.abc import Callable
from typing import Annotated, ClassVar, Final, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from lakelog.wire.compile import decoder, encoder
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
from lakelog.wire.schema import Buffer, EncodeError, Field, MessageVersions, ProtocolError

Message = TypeVar("Message", bound=Struct)

FIELDS_PER_PART: Final = 65_536
"""Fields that are joined in one go. Joining, and letting go of what was joined, holds the
interpreter: two million fields of an answer took 0.2 s, in which no other thread ran (R2)."""


def decode(
    kind: type[Message], version: int, data: memoryview, start: int = 0
) -> tuple[Message, int]:
    """The message at `start` and the position behind it."""
    function = decoder(kind, version)
    if function is None:
        raise ProtocolError(f"{kind.__name__} has no version {version}")
    try:
        found, position = function(data, start, len(data))
    except (IndexError, struct.error):
        raise ProtocolError(f"{kind.__name__} v{version}: the message ends too soon") from None
    except UnicodeDecodeError:
        raise ProtocolError(f"{kind.__name__} v{version}: a string is not UTF-8") from None
    return cast("Message", found), position


def encode(message: Struct, version: int) -> list[Buffer]:
    """The bytes of a message as parts to be sent one after the other."""
    function = encoder(type(message), version)
    if function is None:
        raise EncodeError(f"{type(message).__name__} has no version {version}")
    parts: list[Buffer] = []
    run: list[bytes] = []
    try:
        function(message, parts, run, run.append)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as reason:
        raise EncodeError(f"{type(message).__name__} v{version}: {reason}") from reason
    while len(run) > FIELDS_PER_PART:
        parts.append(b"".join(run[:FIELDS_PER_PART]))
        del run[:FIELDS_PER_PART]
    if run:
        parts.append(b"".join(run))
    return parts


PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of the groups whose members speak this."""

VERSION_BYTES: Final = 2
VERSION_MAX: Final = 3


class ConsumerTopicPartitions(Struct, frozen=True, gc=False):
    """Some partitions of one topic."""

    topic: Annotated[str, Field("string")] = ""
    partitions: Annotated[tuple[int, ...], Field("int32", array=True)] = ()


class ConsumerSubscription(Struct, frozen=True, gc=False):
    """What a member wants, and what it still holds: the metadata of its JoinGroup."""

    versions: ClassVar[MessageVersions] = MessageVersions(first=0, end=VERSION_MAX + 1)
    topics: Annotated[tuple[str, ...], Field("string", array=True)] = ()
    user_data: Annotated[bytes | None, Field("bytes", nullable_from=0)] = None
    owned_partitions: Annotated[
        tuple[ConsumerTopicPartitions, ...], Field(ConsumerTopicPartitions, array=True, since=1)
    ] = ()
    generation_id: Annotated[int, Field("int32", since=2)] = -1
    """The generation in which it got what it holds, not the group's."""
    rack_id: Annotated[str | None, Field("string", since=3, nullable_from=3)] = None


class ConsumerAssignment(Struct, frozen=True, gc=False):
    """What a member was given: the bytes of its SyncGroup."""

    versions: ClassVar[MessageVersions] = MessageVersions(first=0, end=VERSION_MAX + 1)
    assigned_partitions: Annotated[
        tuple[ConsumerTopicPartitions, ...], Field(ConsumerTopicPartitions, array=True)
    ] = ()
    user_data: Annotated[bytes | None, Field("bytes", nullable_from=0)] = None


MessageT = TypeVar("MessageT", ConsumerSubscription, ConsumerAssignment)


def encode_subscription(subscription: ConsumerSubscription, version: int = VERSION_MAX) -> bytes:
    """The bytes of a subscription; what the version has no place for is left out."""
    return _encoded(subscription, version)


def decode_subscription(data: Buffer) -> ConsumerSubscription:
    """Read a subscription; raises ProtocolError."""
    return _decoded(ConsumerSubscription, data, _version(data))


def decode_subscribed_topics(data: Buffer) -> tuple[str, ...]:
    """Read the topics of a subscription alone; raises ProtocolError.

    They come first in every version. Some clients write a version and not all of its fields, and a
    group must know their topics all the same, as Kafka's does.
    """
    _version(data)
    return _decoded(ConsumerSubscription, data, 0).topics


def encode_assignment(assignment: ConsumerAssignment, version: int = VERSION_MAX) -> bytes:
    """The bytes of an assignment."""
    return _encoded(assignment, version)


def decode_assignment(data: Buffer) -> ConsumerAssignment:
    """Read an assignment; raises ProtocolError."""
    return _decoded(ConsumerAssignment, data, _version(data))


def _version(data: Buffer) -> int:
    if len(data) < VERSION_BYTES:
        raise ProtocolError("the consumer protocol begins with a version, here is none")
    version = int.from_bytes(data[:VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise ProtocolError(f"the consumer protocol has no version {version}")
    return min(version, VERSION_MAX)


def _decoded(kind: type[MessageT], data: Buffer, version: int) -> MessageT:
    found, _ = decode(kind, version, memoryview(data), VERSION_BYTES)
    return found


def _encoded(message: ConsumerSubscription | ConsumerAssignment, version: int) -> bytes:
    return b"".join([version.to_bytes(VERSION_BYTES, "big"), *encode(message, version)])


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
