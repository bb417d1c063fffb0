"""The bench's own client makes what other people's parsers read, and sees errors."""

import struct

import pytest
from aiokafka.record.memory_records import MemoryRecords
from bench.raw import KafkaError, batch, check_produced, frame, produce_body, string, varint
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=50), st.integers(0, 2**41))
def test_a_batch_is_read_back_by_another_parser(values: list[bytes], timestamp_ms: int) -> None:
    records = MemoryRecords(batch(values, timestamp_ms))
    parsed = records.next_batch()
    assert parsed.validate_crc()
    assert [(record.key, record.value) for record in parsed] == [(None, each) for each in values]
    assert records.next_batch() is None


@pytest.mark.parametrize(
    ("number", "encoded"), [(0, b"\0"), (-1, b"\x01"), (1, b"\x02"), (64, b"\x80\x01")]
)
def test_a_varint_is_zigzag(number: int, encoded: bytes) -> None:
    assert varint(number) == encoded


def test_a_frame_carries_its_own_length() -> None:
    request = frame(18, 0, 7, b"body")
    assert struct.unpack_from(">ihhi", request) == (len(request) - 4, 18, 0, 7)
    assert request.endswith(b"body")


def produced(*errors: int) -> bytes:
    rows = (struct.pack(">ihqqq", at, error, 0, -1, 0) for at, error in enumerate(errors))
    head = struct.pack(">i", 1) + string("t") + struct.pack(">i", len(errors))
    return head + b"".join(rows) + struct.pack(">i", 0)


def test_an_error_of_any_partition_is_raised() -> None:
    check_produced(produced(0, 0))
    with pytest.raises(KafkaError, match="answered 6"):
        check_produced(produced(0, 6))


def test_a_produce_body_holds_the_batches_as_they_are() -> None:
    one, two = batch([b"a"], 1), batch([b"b"], 2)
    body = produce_body("t", [(0, one), (9, two)])
    assert body.endswith(
        struct.pack(">ii", 0, len(one)) + one + struct.pack(">ii", 9, len(two)) + two
    )
