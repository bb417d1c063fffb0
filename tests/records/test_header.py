"""The header's bytes, walking by lengths, and patching without a copy of the body."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec
from lakelog.records.header import (
    HEADER_BYTES,
    LAYOUT,
    MalformedBatchError,
    batch_crc,
    first_batch_bytes,
    is_transactional,
    parse_header,
    patch,
    restamp,
    split_batches,
)

ONE = memoryview(build_batch([Record(b"k", b"v", 1_000)], BatchOptions()))


def test_the_header_is_61_bytes() -> None:
    # Some documents say 49; the fields add up to 61.
    assert HEADER_BYTES == LAYOUT.size == 61


def test_every_field_is_read_from_its_place() -> None:
    fields = (1 << 40, 49, 3, 2, 0xDEADBEEF, 0x1C, 6, -5, 1 << 41, 77, 8, 9, 10)
    header = parse_header(memoryview(LAYOUT.pack(*fields)))
    assert (header.base_offset, header.batch_length, header.partition_leader_epoch) == fields[:3]
    assert (header.magic, header.crc, header.attributes) == (2, 0xDEADBEEF, 0x1C)
    assert (header.last_offset_delta, header.base_timestamp_ms) == (6, -5)
    assert (header.max_timestamp_ms, header.producer_id) == (1 << 41, 77)
    assert (header.producer_epoch, header.base_sequence, header.record_count) == (8, 9, 10)
    assert header.codec == Codec.ZSTD
    assert header.log_append_time
    assert header.transactional
    assert not header.control
    assert header.size_bytes == 61


def test_a_header_cut_short_is_refused() -> None:
    with pytest.raises(MalformedBatchError):
        parse_header(ONE[:60])


def test_a_patched_batch_keeps_its_crc_and_shares_its_body() -> None:
    prefix, body = patch(ONE, base_offset=(1 << 62) + 5, leader_epoch=9)
    served = memoryview(prefix + bytes(body))
    header = parse_header(served)
    assert header.base_offset == (1 << 62) + 5
    assert header.partition_leader_epoch == 9
    assert len(served) == len(ONE)
    assert header.crc == batch_crc(served)
    assert body.obj is ONE.obj


def test_a_batch_is_served_with_leader_epoch_0_unless_told() -> None:
    prefix, body = patch(ONE, base_offset=3)
    assert parse_header(memoryview(prefix + bytes(body))).partition_leader_epoch == 0


def test_a_restamped_batch_has_a_crc_that_fits_and_the_same_records() -> None:
    stamped = restamp(ONE, attributes=8, max_timestamp_ms=123)
    header = parse_header(stamped)
    assert (header.attributes, header.max_timestamp_ms) == (8, 123)
    assert header.crc == batch_crc(stamped)
    assert stamped[HEADER_BYTES:] == ONE[HEADER_BYTES:]
    assert parse_header(ONE).attributes == 0


@given(cut=st.integers(0, len(ONE) - 1), count=st.integers(0, 3))
def test_whole_batches_come_out_and_a_partial_one_is_left(cut: int, count: int) -> None:
    data = memoryview(bytes(ONE) * count + bytes(ONE[:cut]))
    assert split_batches(data) == [ONE] * count


@pytest.mark.parametrize("length", [-1, 0, 13, -(1 << 31)])
def test_a_length_that_no_batch_can_have_is_refused(length: int) -> None:
    data = memoryview(bytes(8) + length.to_bytes(4, "big", signed=True) + bytes(60))
    with pytest.raises(MalformedBatchError):
        first_batch_bytes(data)


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_a_magic_that_no_batch_can_have_is_refused(magic: int) -> None:
    data = bytearray(ONE)
    data[16] = magic
    with pytest.raises(MalformedBatchError):
        split_batches(memoryview(data))


@pytest.mark.parametrize("magic", [0, 1])
def test_old_batches_are_refused_when_splitting(magic: int) -> None:
    data = bytearray(ONE)
    data[16] = magic
    with pytest.raises(MalformedBatchError):
        split_batches(memoryview(data))


def test_the_transactional_bit_is_seen_without_reading_the_batch() -> None:
    batch = build_batch([Record(None, b"v")], BatchOptions(transactional=True))
    assert is_transactional(memoryview(batch))
    assert is_transactional(memoryview(batch)[:23])
    assert not is_transactional(memoryview(batch)[:22])
    assert not is_transactional(ONE)
    assert not is_transactional(memoryview(b""))
