"""What decode refuses and skips, what encode copies and what it does not."""

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from tests.wire.samples import messages

from lakelog.wire.codec import FIELDS_PER_PART, decode, encode
from lakelog.wire.compile_decode import ELEMENTS_MAX
from lakelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatResponse,
)
from lakelog.wire.messages.describe_groups import DescribeGroupsRequest
from lakelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchLeaderIdAndEpoch,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)
from lakelog.wire.messages.heartbeat import HeartbeatRequest
from lakelog.wire.messages.join_group import JoinGroupResponse
from lakelog.wire.messages.list_groups import ListGroupsRequest
from lakelog.wire.messages.metadata import MetadataRequest, MetadataResponseTopic
from lakelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from lakelog.wire.schema import EncodeError, ProtocolError, RecordParts

TOPIC_ID = bytes(range(16))
HUGE_VARINT = b"\xff\xff\xff\xff\x0f"


def read(kind: type[Struct], version: int, data: bytes) -> Struct:
    return decode(kind, version, memoryview(data))[0]


def heartbeat(tags: bytes) -> bytes:
    return b"\x02g" + struct.pack(">i", 3) + b"\x02m" + b"\x00" + tags


def test_a_heartbeat_is_these_bytes() -> None:
    message = HeartbeatRequest("g", 3, "m", None)
    assert encode(message, 0) == [b"\0\1g\0\0\0\3\0\1m"]
    assert encode(message, 3) == [b"\0\1g\0\0\0\3\0\1m\xff\xff"]
    assert encode(message, 4) == [b"\2g\0\0\0\3\2m\0\0"]
    assert decode(HeartbeatRequest, 4, memoryview(b"..\2g\0\0\0\3\2m\0\0"), 2) == (message, 12)


def test_bytes_behind_the_message_are_ignored() -> None:
    data = memoryview(heartbeat(b"\0") + b"junk")
    assert decode(HeartbeatRequest, 4, data) == (HeartbeatRequest("g", 3, "m"), len(data) - 4)


def test_unknown_tags_are_skipped() -> None:
    tags = b"\x02" + b"\x07\x03abc" + b"\xff\xff\xff\xff\x0f\x00"
    assert read(HeartbeatRequest, 4, heartbeat(tags)) == HeartbeatRequest("g", 3, "m")


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(b"\x02\x05\x00\x05\x00", id="twice"),
        pytest.param(b"\x02\x05\x00\x04\x00", id="falling"),
        pytest.param(b"\x01\x05\x02a", id="beyond the end"),
        pytest.param(b"\x02\x05\x00", id="more than bytes"),
        pytest.param(HUGE_VARINT, id="a huge count"),
        pytest.param(b"\x80\x80\x80\x80\x80\x01", id="a count of six bytes"),
        pytest.param(b"\x01\xff\xff\xff\xff\x1f\x00", id="a tag of 33 bits"),
    ],
)
def test_bad_tags_are_refused(tags: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(HeartbeatRequest, 4, heartbeat(tags))


def fetch_partition(tags: bytes) -> bytes:
    """A Fetch response (16) with one partition that ends in these tags."""
    head = struct.pack(">ihi", 0, 0, 0) + b"\x02" + TOPIC_ID + b"\x02"
    partition = struct.pack(">ihqqq", 0, 0, 9, 9, 0) + b"\0" + struct.pack(">i", -1) + b"\1"
    return head + partition + tags + b"\0" + b"\0"


def test_known_tags_between_unknown_ones_are_read() -> None:
    leader = struct.pack(">ii", 5, 6) + b"\0"
    data = fetch_partition(b"\x02" + b"\x01" + bytes([len(leader)]) + leader + b"\x09\x01x")
    found = decode(FetchResponse, 16, memoryview(data))[0]
    partition = found.responses[0].partitions[0]
    assert partition.current_leader == FetchLeaderIdAndEpoch(5, 6)
    assert partition.diverging_epoch == FetchPartitionData().diverging_epoch


@pytest.mark.parametrize("size", [0, 8, 10, 200])
def test_a_known_tag_of_the_wrong_size_is_refused(size: int) -> None:
    leader = struct.pack(">ii", 5, 6) + b"\0"
    with pytest.raises(ProtocolError):
        read(FetchResponse, 16, fetch_partition(bytes([1, 1, size & 127]) + leader))


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(b"\x02\x09\x00\x09\x00", id="twice"),
        pytest.param(b"\x02\x09\x00\x08\x00", id="falling"),
        pytest.param(b"\x01\x09\x05", id="beyond the end"),
        pytest.param(b"\x7f\x09\x00", id="more than bytes"),
    ],
)
def test_bad_tags_are_refused_where_some_are_known(tags: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(FetchResponse, 16, struct.pack(">ihi", 0, 0, 0) + b"\x01" + tags)


def test_a_tag_at_its_default_is_not_written() -> None:
    at_default = FetchPartitionData(current_leader=FetchLeaderIdAndEpoch(-1, -1))
    parts = encode(FetchResponse(responses=(FetchableTopicResponse(partitions=(at_default,)),)), 16)
    assert b"".join(parts).endswith(b"\x01\0\0\0")


@pytest.mark.parametrize(
    ("version", "data"),
    [
        pytest.param(4, b"\x00", id="null, compact"),
        pytest.param(0, b"\xff\xff", id="null"),
        pytest.param(0, b"\xff\xfe\0\0\0\0", id="length -2"),
        pytest.param(4, b"\x80\x80\x80\x80\x80\x80\x01", id="a long varint"),
        pytest.param(4, b"\xff\xff\xff\xff\x0f", id="a huge length"),
        pytest.param(4, b"\x03\xc3\x28" + bytes(20), id="not UTF-8"),
        pytest.param(5, heartbeat(b"\0"), id="no such version"),
        pytest.param(-1, heartbeat(b"\0"), id="a negative version"),
    ],
)
def test_a_bad_string_or_version_is_refused(version: int, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(HeartbeatRequest, version, data)


def test_null_is_accepted_only_from_the_version_that_allows_it() -> None:
    null = struct.pack(">i", -1)
    assert read(MetadataRequest, 1, null) == MetadataRequest(topics=None)
    with pytest.raises(ProtocolError):
        read(MetadataRequest, 0, null)
    with pytest.raises(ProtocolError):
        read(MetadataRequest, 1, struct.pack(">i", -2))


def test_null_and_empty_differ_in_compact_arrays() -> None:
    flags = b"\1\0\0"
    assert read(MetadataRequest, 12, b"\0" + flags) == MetadataRequest(topics=None)
    assert read(MetadataRequest, 12, b"\1" + flags) == MetadataRequest(topics=())


def test_a_null_string_is_written_as_an_empty_one_where_a_version_has_no_null() -> None:
    null = JoinGroupResponse(error_code=25, protocol_name=None, member_id="m")
    empty = JoinGroupResponse(error_code=25, protocol_name="", member_id="m")
    assert encode(null, 6) == encode(empty, 6)
    assert encode(null, 7) != encode(empty, 7)


def test_a_nullable_struct_has_a_sign_of_its_presence() -> None:
    empty = ConsumerGroupHeartbeatResponse()
    given_one = ConsumerGroupHeartbeatResponse(assignment=ConsumerGroupHeartbeatAssignment())
    assert encode(empty, 0)[0][-2:] == b"\xff\0"
    assert encode(given_one, 0)[0][-4:] == b"\1\1\0\0"
    for message in (empty, given_one):
        assert read(ConsumerGroupHeartbeatResponse, 0, bytes(encode(message, 0)[0])) == message


def test_records_are_a_view_of_the_frame() -> None:
    topic = TopicProduceData(name="t", partition_data=(PartitionProduceData(0, memoryview(b"ab")),))
    frame = b"".join(encode(ProduceRequest(topic_data=(topic,)), 9))
    found = decode(ProduceRequest, 9, memoryview(frame))[0]
    records = found.topic_data[0].partition_data[0].records
    assert records is not None
    assert records.obj is frame
    assert bytes(records) == b"ab"


def fetch_response(*records: bytes | memoryview | RecordParts | None) -> FetchResponse:
    partitions = tuple(
        FetchPartitionData(index, records=value) for index, value in enumerate(records)
    )
    return FetchResponse(responses=(FetchableTopicResponse(TOPIC_ID, partitions),))


@pytest.mark.parametrize("version", [4, 11, 12, 16, 18])
def test_record_buffers_leave_uncopied_and_in_order(version: int) -> None:
    first, second, third = b"a" * 300, memoryview(b"b" * 200), bytearray(b"c" * 100)
    response = fetch_response(None, first, b"", RecordParts([second, third], 300))
    parts = encode(response, version)
    kept = [part for part in parts if any(part is item for item in (first, second, third))]
    assert [bytes(part) for part in kept] == [first, bytes(second), bytes(third)]
    # Two runs before the buffers, and one behind them where something is left to say.
    assert len(parts) == (5 if version < 12 else 6)
    whole = fetch_response(None, first, b"", bytes(second) + bytes(third))
    assert b"".join(parts) == b"".join(encode(whole, version))


def test_an_answer_of_very_many_fields_is_joined_in_several_goes() -> None:
    names = tuple(f"{number:06}" for number in range(2 * FIELDS_PER_PART))
    parts = encode(DescribeGroupsRequest(names), 0)
    fields_max = max(len(part) for part in parts) // len(names[0])
    assert 3 <= len(parts) <= 6
    assert fields_max <= FIELDS_PER_PART
    read, _ = decode(DescribeGroupsRequest, 0, memoryview(b"".join(parts)))
    assert read.groups == names


def test_parts_that_do_not_add_up_are_a_bug() -> None:
    with pytest.raises(AssertionError):
        encode(fetch_response(RecordParts([b"abc"], 4)), 16)


@pytest.mark.parametrize(
    ("message", "version"),
    [
        pytest.param(HeartbeatRequest(group_id="g" * 40000), 0, id="too long for INT16"),
        pytest.param(HeartbeatRequest(generation_id=1 << 31), 4, id="too great for INT32"),
        pytest.param(HeartbeatRequest(group_id="\ud800"), 4, id="not a string of characters"),
        pytest.param(MetadataRequest(topics=None), 0, id="null where there is none"),
        pytest.param(HeartbeatRequest(), 5, id="no such version"),
        pytest.param(fetch_response(), 3, id="no longer a version"),
        pytest.param(
            FetchResponse(responses=(FetchableTopicResponse(b"short"),)), 16, id="a short id"
        ),
    ],
)
def test_a_message_that_does_not_fit_its_version_is_not_written(
    message: Struct, version: int
) -> None:
    with pytest.raises(EncodeError):
        encode(message, version)


def test_a_message_without_fields_has_no_bytes() -> None:
    assert encode(ListGroupsRequest(), 0) == []
    assert decode(ListGroupsRequest, 0, memoryview(b"")) == (ListGroupsRequest(), 0)


def test_a_field_that_a_version_lacks_reads_as_its_default() -> None:
    found = decode(FetchRequest, 4, memoryview(struct.pack(">iiiibi", -1, 500, 1, 99, 0, 0)))[0]
    assert found == FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=99)
    assert MetadataResponseTopic().topic_authorized_operations == -(1 << 31)


def peak_bytes(kind: type[Struct], version: int, data: bytes) -> int:
    """The memory that decoding takes at its worst, the compiled codec not counted.

    What other threads take meanwhile, as those of a broker of other tests, is counted too: the
    least of some decodings has none of it.
    """
    return min(one_peak_bytes(kind, version, data) for _ in range(5))


def one_peak_bytes(kind: type[Struct], version: int, data: bytes) -> int:
    view = memoryview(data)
    tracemalloc.start()
    try:
        decode(kind, version, view)
    except ProtocolError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(HUGE_VARINT * 400, id="counts"),
        pytest.param(b"\x7f" + b"\x01" * 2000, id="many empty elements"),
        pytest.param(b"\x01\x01\x81\x7d" + b"\x05\x00" * 1000, id="tags out of order"),
    ],
)
def test_t_sec_01_02_a_claim_costs_no_memory(data: bytes) -> None:
    for kind, version in messages():
        with contextlib.suppress(ProtocolError):
            decode(kind, version, memoryview(data))  # compiles the codec, which is not measured
        assert peak_bytes(kind, version, data) <= 4 * len(data) + 64 * 1024, (kind, version)


def test_t_sec_02_a_count_is_refused_before_its_elements_are_read() -> None:
    groups = b"\0\1g" * 10_000
    enough = struct.pack(">i", 10_000) + groups
    assert len(decode(DescribeGroupsRequest, 0, memoryview(enough))[0].groups) == 10_000
    for claimed in (15_001, (1 << 31) - 1):
        data = struct.pack(">i", claimed) + groups
        assert peak_bytes(DescribeGroupsRequest, 0, data) < 4096


def test_t_sec_01_a_count_of_tags_is_refused_before_they_are_read() -> None:
    with pytest.raises(ProtocolError, match="fewer bytes than tagged fields"):
        read(HeartbeatRequest, 4, heartbeat(b"\x03\x01\x00\x02\x00\x03"))


def test_t_sec_01_unknown_tags_are_never_kept() -> None:
    tags = b"".join(
        bytes([tag & 127 | 128, tag >> 7 & 127 | 128, tag >> 14, 0]) for tag in range(20000)
    )
    data = b"\1\0" + bytes([20000 & 127 | 128, 20000 >> 7 & 127 | 128, 1]) + tags
    assert read(DescribeGroupsRequest, 5, data) == DescribeGroupsRequest()
    assert peak_bytes(DescribeGroupsRequest, 5, data) < 4096


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from(list(messages())))
def test_only_a_protocol_error_leaves_decode(data: bytes, case: tuple[type[Struct], int]) -> None:
    kind, version = case
    try:
        found, position = decode(kind, version, memoryview(data))
    except ProtocolError:
        return
    assert position <= len(data)
    again, _ = decode(kind, version, memoryview(b"".join(encode(found, version))))
    assert again == found


def test_a_request_of_countless_tiny_elements_is_refused_before_they_are_made() -> None:
    """T-SEC-02: thirteen million empty partitions fit into one Produce request."""
    partition = b"\x00\x00\x00\x07" + b"\xff\xff\xff\xff"
    partitions = ELEMENTS_MAX // 2 + 1
    topic = b"\x00\x01t" + partitions.to_bytes(4, "big") + partition * partitions
    body = b"\xff\xff" + b"\x00\x01" + bytes(4) + (2).to_bytes(4, "big") + topic * 2
    with pytest.raises(ProtocolError, match="more elements"):
        decode(ProduceRequest, 8, memoryview(body))
    one = b"\xff\xff" + b"\x00\x01" + bytes(4) + (1).to_bytes(4, "big") + topic
    request, _ = decode(ProduceRequest, 8, memoryview(one))
    assert len(request.topic_data[0].partition_data) == partitions
