"""Every rule for a produced batch, one at a time and then by chance."""

import random
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.records import TARGETS, mend
from tests.profiles import examples
from tests.sides import side

from lakelog.model.errors import ErrorCode
from lakelog.records.acceptance import (
    AcceptedBatch,
    BatchRules,
    RejectedBatch,
    TimestampType,
    inspect,
)
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec, compress
from lakelog.records.header import HEADER_BYTES, LAYOUT, BatchHeader, batch_crc, parse_header

NOW_MS = 1_700_000_000_000
RULES = BatchRules(now_ms=NOW_MS, produce_version=13)
LOG_APPEND = BatchRules(
    now_ms=NOW_MS, produce_version=13, timestamp_type=TimestampType.LOG_APPEND_TIME
)
PLAIN = BatchOptions()
RECORDS = [
    Record(b"k", b"v", NOW_MS - 5),
    Record(None, None, NOW_MS, [(b"h", None), (b"h", b"2")]),
    Record(b"", b"", NOW_MS - 9),
]
ALL_CODECS = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)


@pytest.fixture(autouse=True, params=["python", "compiled"])
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every rule holds with the kernels and with their twins."""
    with side(compiled=request.param == "compiled"):
        yield


def good(batch: bytes, rules: BatchRules = RULES) -> AcceptedBatch:
    result = inspect(memoryview(batch), rules)
    assert isinstance(result, AcceptedBatch), result
    return result


def refused(batch: bytes | bytearray, rules: BatchRules = RULES) -> RejectedBatch:
    result = inspect(memoryview(batch), rules)
    assert isinstance(result, RejectedBatch), result
    return result


def with_field(batch: bytes, **fields: int) -> bytes:
    """The batch with other header fields, and the CRC that fits them."""
    header = msgspec.structs.replace(parse_header(memoryview(batch)), **fields)
    changed = bytearray(batch)
    LAYOUT.pack_into(changed, 0, *msgspec.structs.astuple(header))
    mend(changed)
    return bytes(changed)


def with_records(section: bytes, count: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch around hand-made record bytes."""
    batch = build_batch([], replace(PLAIN, last_offset_delta=count - 1))
    header = BatchHeader(*LAYOUT.unpack(batch))
    header = msgspec.structs.replace(
        header, record_count=count, attributes=int(codec), base_timestamp_ms=NOW_MS
    )
    made = bytearray(LAYOUT.pack(*msgspec.structs.astuple(header)) + compress(codec, section))
    mend(made)
    return bytes(made)


@ALL_CODECS
def test_a_good_batch_is_stored_as_sent_and_not_copied(codec: Codec) -> None:
    batch = build_batch(RECORDS, replace(PLAIN, codec=codec))
    result = good(batch)
    assert result.data.obj is batch
    assert (result.record_count, result.offset_count) == (3, 3)
    assert (result.min_timestamp_ms, result.max_timestamp_ms) == (NOW_MS - 9, NOW_MS)
    assert (result.producer_id, result.append_time_ms) == (-1, -1)
    assert not result.transactional


def test_what_an_idempotent_producer_says_is_handed_on() -> None:
    options = replace(PLAIN, producer_id=8, producer_epoch=2, base_sequence=2_147_483_647)
    result = good(build_batch(RECORDS, options))
    numbers = (result.producer_id, result.producer_epoch, result.base_sequence)
    assert numbers == (8, 2, 2_147_483_647)


def test_a_transactional_batch_is_flagged_and_left_to_the_caller() -> None:
    assert good(build_batch(RECORDS, replace(PLAIN, transactional=True))).transactional


@pytest.mark.parametrize(
    "tail", [b"\0", bytes(11), b"\1\2\3\4\5", build_batch(RECORDS, PLAIN)[:-1]]
)
def test_a_tail_that_is_no_whole_batch_is_cut_off(tail: bytes) -> None:
    batch = build_batch(RECORDS, PLAIN)
    assert good(batch + tail).data == batch


def test_a_tail_that_cannot_become_a_batch_is_corrupt() -> None:
    assert refused(build_batch(RECORDS, PLAIN) + bytes(12)).code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("size", [0, 1, 11, 16, 17, 60, 61, 70])
def test_a_truncated_batch_is_an_invalid_record(size: int) -> None:
    assert refused(build_batch(RECORDS, PLAIN)[:size]).code == ErrorCode.INVALID_RECORD


def test_a_batch_shorter_than_its_own_header_is_corrupt() -> None:
    batch = bytearray(build_batch(RECORDS, PLAIN)[:50])
    batch[8:12] = (38).to_bytes(4, "big")
    assert refused(batch).code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"base_offset": 1}, ErrorCode.INVALID_RECORD),
        ({"base_offset": -1}, ErrorCode.INVALID_RECORD),
        ({"magic": 0}, ErrorCode.INVALID_RECORD),
        ({"magic": 1}, ErrorCode.INVALID_RECORD),
        ({"magic": 3}, ErrorCode.CORRUPT_MESSAGE),
        ({"magic": -1}, ErrorCode.CORRUPT_MESSAGE),
        ({"attributes": 5}, ErrorCode.INVALID_RECORD),
        ({"attributes": 7}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 3}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": -1, "record_count": 0}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": -3, "record_count": -2}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 3, "record_count": 4}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 1, "record_count": 2}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 2**31 - 1, "record_count": -(2**31)}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 2**31 - 2, "record_count": 2**31 - 1}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 5, "producer_epoch": 0}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 5, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
    ],
)
def test_a_header_that_breaks_a_rule_is_refused(fields: dict[str, int], code: ErrorCode) -> None:
    assert refused(with_field(build_batch(RECORDS, PLAIN), **fields)).code == code


def test_a_producer_id_below_minus_one_means_none() -> None:
    assert good(with_field(build_batch(RECORDS, PLAIN), producer_id=-7)).producer_id == -1


def test_a_flipped_bit_under_the_crc_is_corrupt() -> None:
    batch = build_batch(RECORDS, PLAIN)
    for place in range(17, len(batch)):
        flipped = bytearray(batch)
        flipped[place] ^= 1 << place % 8
        assert refused(flipped).code == ErrorCode.CORRUPT_MESSAGE


def test_two_batches_are_refused_before_their_size_or_crc() -> None:
    batch = build_batch(RECORDS, PLAIN)
    small = msgspec.structs.replace(RULES, message_bytes_max=70)
    assert refused(batch + batch, small).code == ErrorCode.INVALID_RECORD


def test_the_size_limit_counts_the_whole_batch() -> None:
    batch = build_batch(RECORDS, PLAIN)
    good(batch, msgspec.structs.replace(RULES, message_bytes_max=len(batch)))
    small = msgspec.structs.replace(RULES, message_bytes_max=len(batch) - 1)
    assert refused(batch, small).code == ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_produce_version_7() -> None:
    batch = build_batch(RECORDS, replace(PLAIN, codec=Codec.ZSTD))
    old = msgspec.structs.replace(RULES, produce_version=6)
    assert refused(batch, old).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refused(batch + b"\0", old).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    good(batch, msgspec.structs.replace(RULES, produce_version=7))
    good(build_batch(RECORDS, replace(PLAIN, codec=Codec.LZ4)), old)


@ALL_CODECS
@pytest.mark.parametrize(
    "section",
    [
        b"",
        b"\x0e\0\0\0\1\1\0",
        b"\x0c\0\0\0\1\1\0\0",
        b"\x0a\0\0\0\1\1\0",
        b"\x0c\0\0\0\1\1\1",
        b"\x0c\0\0\0\3\1\0",
        b"\x0c\0\0\0\1\3\0",
        b"\x0c\0\0\0\x10\1\0",
        b"\x0c\0\0\2\1\1\0",
        b"\x0c\0\0\1\1\1\0",
        b"\x01",
        b"\x0e\0\0\0\1\1\2\0",
        b"\x10\0\0\0\1\1\2\1\1",
        b"\x10\0\0\0\1\1\2\0\3",
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\xff\x01",
        b"\x80\x80\x80\x80\x80\x80",
        b"\x14\0\0\x80\x80\x80\x80\x10\1\1\0",
    ],
    ids=lambda section: section.hex() or "nothing",
)
def test_malformed_records_are_invalid_records(codec: Codec, section: bytes) -> None:
    result = refused(with_records(section, 1, codec))
    assert result.code == ErrorCode.INVALID_RECORD
    assert not result.record_errors


def test_the_same_bytes_unharmed_are_a_record() -> None:
    good(with_records(b"\x0c\0\0\0\1\1\0", 1))
    good(with_records(b"\x10\0\0\0\1\1\2\0\1", 1))
    # A number in a longer form than needed is read, as Kafka reads it.
    good(with_records(b"\x0e\0\x80\0\0\1\1\0", 1))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_broken_compression_is_an_invalid_record(codec: Codec) -> None:
    batch = bytearray(build_batch(RECORDS * 20, replace(PLAIN, codec=codec)))
    for damage in (batch[:-3], batch[:HEADER_BYTES], batch + b"xyz", batch[:70] + bytes(30)):
        damaged = bytearray(damage)
        mend(damaged)
        assert refused(damaged).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_a_message_too_large(codec: Codec) -> None:
    batch = build_batch([Record(None, bytes(3 << 20), NOW_MS)], replace(PLAIN, codec=codec))
    capped = msgspec.structs.replace(RULES, decompressed_bytes_max=3 << 20)
    assert refused(batch, capped).code == ErrorCode.MESSAGE_TOO_LARGE
    good(batch, msgspec.structs.replace(RULES, decompressed_bytes_max=(3 << 20) + 100))


@ALL_CODECS
def test_large_records_are_walked_piece_by_piece(codec: Codec) -> None:
    sizes = (10, 200_000, 64 << 10, 65_530, 3, 1_000_000, 0, 70_000)
    records = [
        Record(bytes(size // 2), bytes(size), NOW_MS + index, [(b"h" * (size // 4), bytes(size))])
        for index, size in enumerate(sizes)
    ]
    roomy = msgspec.structs.replace(RULES, message_bytes_max=1 << 30)
    result = good(build_batch(records, replace(PLAIN, codec=codec)), roomy)
    assert (result.record_count, result.max_timestamp_ms) == (8, NOW_MS + 7)


@ALL_CODECS
def test_every_record_out_of_time_is_listed(codec: Codec) -> None:
    times = (NOW_MS, NOW_MS + 3_600_001, -1, NOW_MS + 3_600_000, NOW_MS - 11)
    records = [Record(b"k", b"v", time_ms) for time_ms in times]
    strict = msgspec.structs.replace(RULES, timestamp_before_max_ms=10)
    result = refused(build_batch(records, replace(PLAIN, codec=codec)), strict)
    assert result.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in result.record_errors] == [1, 4]
    assert str(NOW_MS + 3_600_001) in result.record_errors[0][1]


@ALL_CODECS
def test_every_record_without_a_key_is_listed_on_a_compacted_topic(codec: Codec) -> None:
    records = [Record(key, b"v", NOW_MS) for key in (None, b"", b"k", None)]
    compacted = msgspec.structs.replace(RULES, compacted=True)
    result = refused(build_batch(records, replace(PLAIN, codec=codec)), compacted)
    assert result.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in result.record_errors] == [0, 3]
    good(build_batch(records[1:3], PLAIN), compacted)


def test_a_bad_timestamp_beside_a_missing_key_is_a_bad_timestamp() -> None:
    records = [Record(None, b"v", NOW_MS), Record(b"k", b"v", NOW_MS + 10**10)]
    compacted = msgspec.structs.replace(RULES, compacted=True)
    result = refused(build_batch(records, PLAIN), compacted)
    assert result.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in result.record_errors] == [0, 1]


def test_a_refusal_costs_no_more_than_the_batch() -> None:
    batch = build_batch([Record(None, None, NOW_MS)] * 5_000, replace(PLAIN, codec=Codec.ZSTD))
    compacted = msgspec.structs.replace(RULES, compacted=True)
    result = refused(batch, compacted)
    assert len(result.record_errors) == 64 + len(batch) // 256


def test_log_append_time_stamps_any_timestamp() -> None:
    records = [Record(b"k", b"v", time_ms) for time_ms in (-1, NOW_MS + 10**12, 5)]
    for codec in Codec:
        batch = build_batch(records, replace(PLAIN, codec=codec))
        result = good(batch, LOG_APPEND)
        header = parse_header(result.data)
        assert header.attributes == 8 | codec
        assert header.max_timestamp_ms == result.append_time_ms == NOW_MS
        assert header.base_timestamp_ms == -1
        assert header.crc == batch_crc(result.data)
        assert result.data[HEADER_BYTES:] == memoryview(batch)[HEADER_BYTES:]


def test_a_log_append_time_bit_without_a_time_is_a_bad_timestamp() -> None:
    batch = build_batch(RECORDS, replace(PLAIN, append_time_ms=-1))
    result = refused(batch)
    assert result.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in result.record_errors] == [0, 1, 2]


def test_a_cleared_log_append_time_bit_leaves_the_records_own_times() -> None:
    result = good(build_batch(RECORDS, replace(PLAIN, append_time_ms=77)))
    assert (result.min_timestamp_ms, result.max_timestamp_ms) == (NOW_MS - 9, NOW_MS)
    assert parse_header(result.data).max_timestamp_ms == NOW_MS


def test_timestamps_without_a_time_have_none_as_their_greatest() -> None:
    result = good(build_batch([Record(None, b"v"), Record(None, b"v", -50)], PLAIN))
    assert (result.min_timestamp_ms, result.max_timestamp_ms) == (-50, -1)


@settings(deadline=None, max_examples=examples(60))
@given(seed=st.integers(0, 1 << 32))
def test_hostile_batches_get_an_answer(seed: int) -> None:
    for target in TARGETS.values():
        target(random.Random(seed))
