"""Records as bytes: round trips, and everything that is not a record is `Corrupt`."""

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.domain.build import B, commit_of, create_of, idempotent
from tests.profiles import examples

from lakelog.domain.envelope import (
    OVERHEAD_BYTES_MAX,
    DomainRecord,
    Stamp,
    decode_record,
    encode_record,
)
from lakelog.domain.events import Barrier, Event, Hello
from lakelog.model.failures import Corrupt

SAMPLE = DomainRecord("7", Stamp(3, 9), 1, (Hello(1), commit_of([B(1), idempotent(2, 0)])))


def resealed(data: bytes | bytearray) -> bytes:
    """The bytes with a right checksum."""
    body = bytes(data[:-4])
    return body + crc32c(body).to_bytes(4, "little")


@given(
    st.text(min_size=1, max_size=60),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(1, 5),
)
def test_a_record_survives_the_round_trip(
    writer: str, incarnation: int, number: int, barriers: int
) -> None:
    events: tuple[Event, ...] = (Barrier(),) * barriers
    record = DomainRecord(writer, Stamp(incarnation, number), 1, events)
    assert decode_record(encode_record(record), level_max=1) == record


def test_the_overhead_of_an_envelope_has_the_promised_bound() -> None:
    record = DomainRecord("w" * 255, Stamp(1, 1), 1, (Barrier(),))
    assert len(encode_record(record)) <= OVERHEAD_BYTES_MAX + 5


def test_every_flipped_bit_is_noticed() -> None:
    data = bytearray(encode_record(SAMPLE))
    for place in range(len(data) * 8):
        data[place // 8] ^= 1 << place % 8
        with pytest.raises(Corrupt):
            decode_record(bytes(data), level_max=1)
        data[place // 8] ^= 1 << place % 8


def test_every_truncation_is_noticed_with_and_without_a_right_checksum() -> None:
    data = encode_record(SAMPLE)
    for length in range(len(data)):
        with pytest.raises(Corrupt):
            decode_record(data[:length], level_max=1)
        if length >= 4:
            with pytest.raises(Corrupt):
                decode_record(resealed(data[:length]), level_max=1)


def test_an_unknown_kind_is_corrupt_and_never_skipped() -> None:
    """Rule 11: skipping it would make this replica's state differ from the others'."""
    data = bytearray(encode_record(DomainRecord("a", Stamp(1, 1), 1, (Barrier(),))))
    data[-9] = 99
    with pytest.raises(Corrupt, match="kind 99"):
        decode_record(resealed(data), level_max=1)


def test_a_level_above_ours_is_corrupt() -> None:
    data = encode_record(DomainRecord("a", Stamp(1, 1), 2, (Barrier(),)))
    with pytest.raises(Corrupt, match="level 2"):
        decode_record(data, level_max=1)


def test_a_writer_that_is_no_text_is_corrupt() -> None:
    data = bytearray(encode_record(DomainRecord("a", Stamp(1, 1), 1, (Barrier(),))))
    data[data.index(b"a")] = 0xFF
    with pytest.raises(Corrupt, match="who wrote"):
        decode_record(resealed(data), level_max=1)


@settings(max_examples=examples(300))
@given(st.binary(max_size=80), st.integers(0, 120))
def test_garbage_behind_a_right_checksum_is_corrupt(garbage: bytes, place: int) -> None:
    data = bytearray(encode_record(DomainRecord("ab", Stamp(1, 2), 1, (create_of(1, 2),))))
    place = min(place, len(data) - 4)
    data[place : place + len(garbage)] = garbage
    try:
        record = decode_record(resealed(data), level_max=1)
    except Corrupt:
        return
    assert record.events
