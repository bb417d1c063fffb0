"""Frames come whole however the bytes were split, and cost what was received."""

import random
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.frame_runs import FrameRun
from lakelog.wire.framing import (
    KIB,
    MIB,
    REQUEST_LIMITS,
    RESPONSE_LIMITS,
    SCRATCH_BYTES,
    UNAUTHENTICATED_LIMITS,
    FrameLimits,
    FrameReader,
    RequestHeader,
    decode_response,
    encode_request,
    encode_response,
    parse_request_header,
)
from lakelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lakelog.wire.messages.fetch import FetchableTopicResponse, FetchPartitionData, FetchResponse
from lakelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lakelog.wire.messages.list_groups import ListGroupsRequest
from lakelog.wire.schema import EncodeError, ProtocolError

HEARTBEAT = APIS[ApiKey.HEARTBEAT]


class Connection:
    """Feeds a reader as a loop does: a buffer is asked for, filled as far as it goes, reported."""

    def __init__(self, reader: FrameReader) -> None:
        self.reader = reader
        self.found: list[bytes | ProtocolError] = []

    def receive(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            buffer = self.reader.get_buffer(-1)
            count = min(len(view), len(buffer))
            buffer[:count] = view[:count]
            for item in self.reader.updated(count):
                assert not isinstance(item, FrameRun), "nobody asked for runs"
                self.found.append(item if isinstance(item, ProtocolError) else bytes(item))
            view = view[count:]


def connection(limits: FrameLimits = REQUEST_LIMITS) -> Connection:
    return Connection(FrameReader(bytearray(SCRATCH_BYTES), limits))


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def body(size: int, key: int = 0) -> bytes:
    return struct.pack(">h", key) + random.Random(size).randbytes(size - 2)


def test_frames_come_byte_by_byte() -> None:
    bodies = [body(8), body(9), body(300)]
    peer = connection()
    for byte in b"".join(map(framed, bodies)):
        peer.receive(bytes([byte]))
    assert peer.found == bodies


def test_many_frames_come_at_once() -> None:
    bodies = [body(8 + index) for index in range(500)]
    peer = connection()
    peer.receive(b"".join(map(framed, bodies)))
    assert peer.found == bodies


@pytest.mark.parametrize(
    "size",
    [
        64 * KIB - 4,
        64 * KIB,
        64 * KIB + 1,
        192 * KIB,
        192 * KIB + 1,
        MIB,
        5 * MIB + 3,
    ],
)
def test_large_frames_come_whole_and_leave_what_follows(size: int) -> None:
    bodies = [body(20), body(size), body(9), body(size), body(30)]
    peer = connection()
    peer.receive(b"".join(map(framed, bodies)))
    assert peer.found == bodies


@settings(deadline=None)
@given(
    st.lists(st.integers(8, 200_000), max_size=6),
    st.lists(st.integers(500, 150_000), min_size=1, max_size=20),
)
def test_frames_come_whole_however_they_are_split(sizes: list[int], splits: list[int]) -> None:
    bodies = [body(size) for size in sizes]
    stream = b"".join(map(framed, bodies))
    peer = connection()
    position = 0
    while position < len(stream):
        for split in splits:
            peer.receive(stream[position : position + split])
            position += split
    assert peer.found == bodies


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(1, 40))
def test_any_bytes_give_frames_or_one_error_at_the_end(data: bytes, step: int) -> None:
    whole, pieces = connection(), connection()
    whole.receive(data)
    for start in range(0, len(data), step):
        pieces.receive(data[start : start + step])
    kinds = [item if isinstance(item, bytes) else "error" for item in whole.found]
    assert kinds == [item if isinstance(item, bytes) else "error" for item in pieces.found]
    assert "error" not in kinds[:-1]


def test_connections_share_a_scratch_buffer() -> None:
    scratch = bytearray(SCRATCH_BYTES)
    peers = [Connection(FrameReader(scratch)) for _ in range(3)]
    bodies = [body(1000), body(70 * KIB), body(2000)]
    streams = [framed(item) for item in bodies]
    for start in range(0, 80 * KIB, 999):
        for peer, stream in zip(peers, streams, strict=True):
            peer.receive(stream[start : start + 999])
    assert [peer.found for peer in peers] == [[item] for item in bodies]


def test_a_frame_owns_its_memory() -> None:
    reader = FrameReader(bytearray(SCRATCH_BYTES))
    kept = []
    for index in range(4):
        data = framed(body(100 + index))
        reader.get_buffer(-1)[: len(data)] = data
        kept += [item for item in reader.updated(len(data)) if isinstance(item, memoryview)]
    assert [bytes(item) for item in kept] == [body(100 + index) for index in range(4)]
    assert all(item.readonly for item in kept)


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 7, 100 * MIB + 1, (1 << 31) - 1])
def test_t_sec_05_a_length_that_cannot_be_is_refused_at_once(size: int) -> None:
    peer = connection()
    peer.receive(framed(body(10)) + struct.pack(">i", size))
    assert peer.found[0] == body(10)
    assert isinstance(peer.found[1], ProtocolError)
    peer.receive(framed(body(10)) * 3)
    assert len(peer.found) == 2


@pytest.mark.parametrize(
    ("key", "size_max"),
    [
        (ApiKey.PRODUCE, 100 * MIB),
        (ApiKey.JOIN_GROUP, 16 * MIB),
        (ApiKey.SYNC_GROUP, 16 * MIB),
        (ApiKey.METADATA, 2 * MIB),
        (999, 2 * MIB),
    ],
)
def test_each_api_has_its_limit(key: int, size_max: int) -> None:
    for limits, allowed in ((REQUEST_LIMITS, size_max), (UNAUTHENTICATED_LIMITS, 512 * KIB)):
        peer = connection(limits)
        peer.receive(struct.pack(">ih", allowed, key))
        assert peer.found == []
        for pieces in (1, 6):
            peer = connection(limits)
            head = struct.pack(">ih", allowed + 1, key)
            for start in range(0, 6, pieces):
                peer.receive(head[start : start + pieces])
            assert len(peer.found) == 1
            assert isinstance(peer.found[0], ProtocolError)


def test_limits_can_be_raised_once_a_client_is_known() -> None:
    peer = connection(UNAUTHENTICATED_LIMITS)
    peer.receive(framed(body(100)))
    peer.reader.limits = REQUEST_LIMITS
    peer.receive(framed(body(MIB)))
    assert peer.found == [body(100), body(MIB)]


@pytest.mark.parametrize("claim", [100, 60 * KIB, MIB, 100 * MIB])
def test_a_claim_costs_what_was_received(claim: int) -> None:
    peer = connection()
    reader = peer.reader
    before = framed(body(100))  # a small frame makes nobody believe in a large one
    peer.receive(before[:50])
    head = before[50:] + struct.pack(">ih", claim, 0)
    received = 0
    tracemalloc.start()
    try:
        reader.get_buffer(-1)[: len(head)] = head
        reader.updated(len(head))
        assert tracemalloc.get_traced_memory()[1] <= 66 * KIB
        while received < min(claim - 10, 5 * MIB):
            tracemalloc.reset_peak()
            count = min(len(reader.get_buffer(-1)), claim - 10 - received, 64 * KIB)
            # Room is made before more is received, and all of it is told.
            assert tracemalloc.get_traced_memory()[1] <= 4 * received + 65 * KIB
            assert reader.room_bytes >= received
            assert abs(reader.room_bytes - tracemalloc.get_traced_memory()[0]) <= 4 * KIB
            received += count
            reader.updated(count)
    finally:
        tracemalloc.stop()


def test_a_full_frame_grows_by_no_more_than_it_may() -> None:
    peer = connection()
    reader = peer.reader
    peer.receive(struct.pack(">ih", 3 * MIB, 0))
    reader.updated(len(reader.get_buffer(-1)))
    assert len(reader.get_buffer(-1, 1 * KIB)) == 1 * KIB
    assert reader.room_bytes == 4 + 65 * KIB
    reader.updated(1 * KIB)
    assert len(reader.get_buffer(-1)) == 2 * 65 * KIB


def test_a_frame_like_one_before_is_received_without_a_copy() -> None:
    peer = connection()
    peer.receive(framed(body(3 * MIB)))
    peer.receive(struct.pack(">ih", 3 * MIB, 0))
    peer.receive(b"x")
    assert len(peer.reader.get_buffer(-1)) == 3 * MIB - 3


def test_an_idle_connection_holds_next_to_nothing() -> None:
    scratch = bytearray(SCRATCH_BYTES)
    tracemalloc.start()
    try:
        peers = [Connection(FrameReader(scratch)) for _ in range(100)]
        for peer in peers:
            peer.receive(framed(body(100 * KIB)))
            peer.found.clear()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held / len(peers) < 2 * KIB


def request(version: int, client_id: str | None) -> bytes:
    parts = encode_request(HEARTBEAT, version, 77, client_id, HeartbeatRequest("g", 3, "m"))
    return b"".join(parts)


def test_a_request_is_these_bytes() -> None:
    assert request(0, "me") == (
        b"\0\0\0\x16" + b"\0\x0c\0\0\0\0\0\x4d" + b"\0\2me" + b"\0\1g\0\0\0\3\0\1m"
    )
    assert request(4, None) == (
        b"\0\0\0\x15" + b"\0\x0c\0\4\0\0\0\x4d" + b"\xff\xff" + b"\0" + b"\2g\0\0\0\3\2m\0\0"
    )


@pytest.mark.parametrize("client_id", ["me", "", None, "é" * 300])
@pytest.mark.parametrize("version", [0, 3, 4])
def test_a_request_header_is_read_back(version: int, client_id: str | None) -> None:
    frame = memoryview(request(version, client_id))[4:]
    header = parse_request_header(frame)
    assert header == RequestHeader(12, version, 77, client_id, header.body_start)
    assert bytes(frame[header.body_start :][:2]) == (b"\2g" if version == 4 else b"\0\1")


def test_tags_of_a_header_are_skipped() -> None:
    head = b"\0\x0c\0\4\0\0\0\x4d\xff\xff" + b"\x02\x00\x03abc\x01\x00"
    assert parse_request_header(memoryview(head + b"body")).body_start == len(head)


def test_a_client_id_that_is_not_text_is_no_reason_to_close() -> None:
    head = b"\0\x0c\0\0\0\0\0\x4d\0\2\xff\xfe"
    assert parse_request_header(memoryview(head)).client_id == "\ufffd\ufffd"


def test_an_unknown_version_still_has_a_header() -> None:
    head = b"\0\x12\0\x63\0\0\0\1\xff\xff\0"
    assert parse_request_header(memoryview(head)) == RequestHeader(18, 99, 1, None, len(head))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\0\x0c\0\0\0\0\0\x4d", id="no client id"),
        pytest.param(b"\0\x0c\0\0\0\0\0\x4d\0\3me", id="client id too long"),
        pytest.param(b"\0\x0c\0\0\0\0\0\x4d\xff\xfe", id="client id of -2"),
        pytest.param(b"\0\x0c\0\4\0\0\0\x4d\xff\xff", id="no tags"),
        pytest.param(b"\0\x0c\0\4\0\0\0\x4d\xff\xff\x01\x00\x09", id="tag too long"),
        pytest.param(b"\0\x0c\0\4\0\0\0\x4d\xff\xff\x01", id="tag missing"),
        pytest.param(b"\0\x0c\0\4\0\0\0\x4d\xff\xff\xff", id="count cut short"),
        pytest.param(b"\3\xe7\0\0\0\0\0\x4d\xff\xff", id="no such API"),
    ],
)
def test_a_bad_header_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_request_header(memoryview(data))


def test_responses_have_the_header_of_their_version() -> None:
    for version, head in ((3, b""), (4, b"\0")):
        header = RequestHeader(12, version, 77, None, 0)
        (frame,) = encode_response(header, HeartbeatResponse(0, 27))
        assert frame[4:9] == b"\0\0\0\x4d" + (head or b"\0")
        assert decode_response(HeartbeatResponse, version, memoryview(frame)[4:]) == (
            77,
            HeartbeatResponse(0, 27),
        )
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4 == 10 + 2 * len(head)


def test_an_unknown_version_of_the_version_request_is_answered_in_version_0() -> None:
    header = RequestHeader(18, 99, 5, None, 0)
    (frame,) = encode_response(header, ApiVersionsResponse(error_code=35), version=0)
    assert frame == b"\0\0\0\x0a" + b"\0\0\0\5" + b"\0\x23" + b"\0\0\0\0"
    newest = RequestHeader(18, 4, 5, None, 0)
    (frame,) = encode_response(newest, ApiVersionsResponse(error_code=35))
    assert decode_response(ApiVersionsResponse, 4, memoryview(frame)[4:])[1].error_code == 35
    with pytest.raises(EncodeError):
        encode_response(header, ApiVersionsResponse())


def test_a_response_with_records_says_its_whole_size() -> None:
    records = bytes(10_000)
    topic = FetchableTopicResponse(bytes(16), (FetchPartitionData(records=records),))
    parts = encode_response(RequestHeader(1, 16, 9, None, 0), FetchResponse(responses=(topic,)))
    assert [len(part) for part in parts][1] == len(records)
    assert parts[1] is records
    stream = b"".join(parts)
    peer = connection(RESPONSE_LIMITS)
    peer.receive(stream)
    assert peer.found == [stream[4:]]


def test_a_long_answer_is_not_copied_for_its_header() -> None:
    text = "x" * 20_000
    parts = encode_request(HEARTBEAT, 4, 1, None, HeartbeatRequest(text))
    assert len(parts) == 2


def test_a_message_without_bytes_is_a_frame_too() -> None:
    (frame,) = encode_request(APIS[ApiKey.LIST_GROUPS], 0, 1, None, ListGroupsRequest())
    assert frame == b"\0\0\0\x0a\0\x10\0\0\0\0\0\1\xff\xff"


def test_a_client_id_too_long_for_its_header_is_not_written() -> None:
    with pytest.raises(EncodeError):
        encode_request(APIS[ApiKey.API_VERSIONS], 3, 1, "x" * 40_000, ApiVersionsRequest())


def test_a_response_without_a_header_is_refused() -> None:
    for data in (b"", b"\0\0\0", b"\0\0\0\1"):
        with pytest.raises(ProtocolError):
            decode_response(HeartbeatResponse, 4, memoryview(data))
