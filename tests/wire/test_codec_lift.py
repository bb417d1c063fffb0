"""Old shapes reach handlers in the newest shape, and answers go back in the old one."""

from typing import TypeVar

from msgspec import Struct

from lakelog.wire.codec import decode, encode, lift, lower
from lakelog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from lakelog.wire.messages.heartbeat import HeartbeatRequest
from lakelog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from lakelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

NOT_COORDINATOR = 16


Message = TypeVar("Message", bound=Struct)


def through(message: Message, version: int) -> Message:
    """The message as it comes out on the other side of the wire."""
    data = b"".join(encode(message, version))
    return decode(type(message), version, memoryview(data))[0]


def test_one_key_becomes_a_list_of_keys() -> None:
    for version in (0, 1, 2, 3):
        lifted = lift(through(FindCoordinatorRequest(key="g"), version), version)
        assert lifted.coordinator_keys == ("g",)
    newest = FindCoordinatorRequest(coordinator_keys=("a", "b"))
    assert lift(newest, 4) is newest


def test_the_first_coordinator_is_the_answer_of_old_versions() -> None:
    found = Coordinator("g", 3, "host", 9092, NOT_COORDINATOR, "elsewhere")
    response = FindCoordinatorResponse(coordinators=(found,))
    old = through(lower(response, 1), 1)
    assert (old.node_id, old.host, old.port) == (3, "host", 9092)
    assert (old.error_code, old.error_message) == (NOT_COORDINATOR, "elsewhere")
    assert lower(response, 4) is response
    assert lower(FindCoordinatorResponse(error_code=15), 3).error_code == 15


def test_the_member_that_leaves_becomes_a_list_of_members() -> None:
    lifted = lift(through(LeaveGroupRequest("g", member_id="m"), 2), 2)
    assert lifted.members == (MemberIdentity("m"),)
    newest = LeaveGroupRequest("g", (MemberIdentity("a"), MemberIdentity("b")))
    assert lift(newest, 3) is newest


def test_the_error_of_the_only_member_goes_to_the_top_in_old_versions() -> None:
    response = LeaveGroupResponse(members=(MemberResponse("m", None, 25),))
    assert through(lower(response, 2), 2).error_code == 25
    assert lower(response, 3) is response
    refused = LeaveGroupResponse(error_code=NOT_COORDINATOR)
    assert through(lower(refused, 0), 0).error_code == NOT_COORDINATOR


def old_offset_request() -> OffsetFetchRequest:
    return OffsetFetchRequest(group_id="g", topics=(OffsetFetchRequestTopic("t", (0, 2)),))


def test_the_topics_of_one_group_become_a_list_of_groups() -> None:
    topics = (OffsetFetchRequestTopics(name="t", partition_indexes=(0, 2)),)
    lifted = lift(through(old_offset_request(), 5), 5)
    assert lifted.groups == (OffsetFetchRequestGroup("g", topics=topics),)
    everything = lift(through(OffsetFetchRequest(group_id="g", topics=None), 7), 7)
    assert everything.groups == (OffsetFetchRequestGroup("g", topics=None),)
    newest = OffsetFetchRequest(groups=(OffsetFetchRequestGroup("g"),))
    assert lift(newest, 8) is newest


def offset_response(error_code: int) -> OffsetFetchResponse:
    partition = OffsetFetchResponsePartitions(2, 17, 4, "note", 0)
    topic = OffsetFetchResponseTopics(name="t", partitions=(partition,))
    topics = () if error_code else (topic,)
    return OffsetFetchResponse(groups=(OffsetFetchResponseGroup("g", topics, error_code),))


def test_the_offsets_of_the_only_group_are_the_answer_of_old_versions() -> None:
    partition = OffsetFetchResponsePartition(2, 17, 4, "note", 0)
    old = through(lower(offset_response(0), 5), 5)
    assert old.topics == (OffsetFetchResponseTopic("t", (partition,)),)
    assert old.error_code == 0
    assert lower(offset_response(0), 8) == offset_response(0)


def test_the_error_of_the_only_group_goes_to_the_top_in_versions_2_to_7() -> None:
    for version in range(2, 8):
        old = through(lower(offset_response(NOT_COORDINATOR), version), version)
        assert old.error_code == NOT_COORDINATOR
        assert old.topics == ()


def test_the_error_of_the_only_group_goes_to_every_partition_in_version_1() -> None:
    request = lift(through(old_offset_request(), 1), 1)
    old = through(lower(offset_response(NOT_COORDINATOR), 1, request), 1)
    assert old.topics == (
        OffsetFetchResponseTopic(
            "t",
            tuple(
                OffsetFetchResponsePartition(index, -1, error_code=NOT_COORDINATOR)
                for index in (0, 2)
            ),
        ),
    )


def test_what_never_moved_is_left_alone() -> None:
    message = HeartbeatRequest("g")
    assert lift(message, 0) is message
    assert lower(message, 0) is message
