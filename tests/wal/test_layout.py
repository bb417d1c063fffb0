"""The object's bytes are the document's; every flipped bit and every cut is seen."""

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.model.failures import Corrupt
from lakelog.model.ids import DomainId, StreamId, WalId
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.wal.layout import (
    HEADER,
    INDEX_ENTRY,
    Chunk,
    ChunkPlace,
    decode,
    encode,
    make_wal_id,
    verify_run,
)

ID = make_wal_id(1_700_000_000_000, bytes(range(10)))
DOMAIN = DomainId(2)


def batch_of(count: int, timestamp_ms: int = 1_000) -> bytes:
    rows = [Record(b"k", b"v", timestamp_ms + index) for index in range(count)]
    return build_batch(rows, BatchOptions())


def chunk_of(stream_id: int, *counts: int) -> Chunk:
    batches = [batch_of(count) for count in counts]
    return Chunk(StreamId(stream_id), batches, sum(counts), 1_000, 999 + max(counts))


def object_of(*chunks: Chunk) -> bytes:
    return b"".join(encode(ID, DOMAIN, 1_700_000_000_001, chunks).parts)


def sealed(data: bytearray) -> memoryview:
    """The bytes under a footer that fits them."""
    data[-4:] = crc32c(data[:-4]).to_bytes(4, "big")
    return memoryview(data)


GOLDEN = """
4452415957 4f31 0001 018bcfe56800 7001 8203 040506070809 00000002 0000018bcfe56801 00000002
0000000000000031
0000000000000005 0000000000000089 0000004a 00000001 00000001 00000000000003e8 00000000000003e8
0000000000000009 00000000000000d3 0000009d 00000003 00000002 00000000000003e8 00000000000003e9
"""


def test_the_bytes_are_those_of_the_document() -> None:
    one, two = batch_of(1), batch_of(2)
    body = b"".join(len(batch).to_bytes(4, "big") + batch for batch in (one, one, two))
    expected = bytes.fromhex(GOLDEN) + body
    expected += crc32c(expected).to_bytes(4, "big")
    made = object_of(chunk_of(9, 1, 2), chunk_of(5, 1))
    assert made.hex() == expected.hex()
    assert (HEADER.size, INDEX_ENTRY.size) == (49, 44)


PINNED = (
    "44524159574f310001018bcfe5680070018203040506070809000000020000018bcfe56801000000"
    "0100000000000000310000000000000005000000000000005d0000004a0000000100000001000000"
    "00000003e800000000000003e80000004600000000000000000000003affffffff02716a61890000"
    "0000000000000000000003e800000000000003e8ffffffffffffffffffffffffffff000000011000"
    "0000026b027600c9cb2ea4"
)


def test_a_whole_object_is_pinned_to_the_last_byte() -> None:
    assert object_of(chunk_of(5, 1)).hex() == PINNED


def test_large_batches_are_not_copied_and_small_ones_share_a_part() -> None:
    small = chunk_of(5, 1, 2)
    large = msgspec.structs.replace(
        small,
        stream_id=StreamId(6),
        batches=[bytes(batch) + bytes(9000) for batch in small.batches],
    )
    encoded = encode(ID, DOMAIN, 0, [small, large])
    _, shared, *parts, _ = encoded.parts
    assert len(shared) == sum(len(batch) + 4 for batch in small.batches)
    assert parts[1] is large.batches[0]
    assert parts[3] is large.batches[1]
    assert encoded.size_bytes == sum(len(part) for part in encoded.parts)


def test_places_are_runs_of_the_object() -> None:
    chunks = [chunk_of(9, 1, 2, 3), chunk_of(5, 4)]
    encoded = encode(ID, DOMAIN, 0, chunks)
    data = memoryview(b"".join(encoded.parts))
    assert [place.stream_id for place in encoded.places] == [5, 9]
    for place, chunk in zip(encoded.places, reversed(chunks), strict=True):
        assert verify_run(data[place.start : place.end]) == chunk.batches
        edges = (*place.batch_starts, place.end)
        for number, batch in enumerate(chunk.batches):
            assert verify_run(data[edges[number] : edges[number + 1]]) == [batch]


streams = st.dictionaries(
    st.integers(0, (1 << 64) - 1),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    min_size=1,
    max_size=5,
)


@settings(deadline=None)
@given(streams=streams, domain=st.integers(0, (1 << 32) - 1), created_ms=st.integers(-5, 1 << 50))
def test_what_is_encoded_is_decoded(
    streams: dict[int, list[int]], domain: int, created_ms: int
) -> None:
    chunks = [chunk_of(stream_id, *counts) for stream_id, counts in streams.items()]
    encoded = encode(ID, DomainId(domain), created_ms, chunks)
    found = decode(memoryview(b"".join(encoded.parts)), wal_id=ID)
    assert (found.wal_id, found.domain, found.created_ms) == (ID, domain, created_ms)
    ordered = sorted(chunks, key=lambda chunk: chunk.stream_id)
    for entry, batches, chunk, place in zip(
        found.chunks, found.batches, ordered, encoded.places, strict=True
    ):
        assert place == ChunkPlace(entry.stream_id, entry.start, entry.end, place.batch_starts)
        assert entry.record_count == chunk.record_count
        assert entry.batch_count == len(batches)
        assert (entry.min_timestamp_ms, entry.max_timestamp_ms) == (1_000, chunk.max_timestamp_ms)
        assert list(batches) == chunk.batches


def test_every_flipped_bit_is_seen() -> None:
    made = object_of(chunk_of(5, 1), chunk_of(9, 1, 2))
    for place in range(len(made)):
        for bit in range(8):
            flipped = bytearray(made)
            flipped[place] ^= 1 << bit
            with pytest.raises(Corrupt):
                decode(memoryview(flipped))


def test_every_cut_is_seen_also_under_a_footer_that_fits() -> None:
    made = object_of(chunk_of(5, 1), chunk_of(9, 1, 2))
    for end in range(len(made)):
        with pytest.raises(Corrupt):
            decode(memoryview(made)[:end])
        if end >= 4:
            with pytest.raises(Corrupt):
                decode(sealed(bytearray(made[:end])))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, b"DRAYWO2"),
        (7, b"\0\2"),
        (37, b"\0\0\0\0"),
        (37, b"\0\0\0\1"),
        (37, b"\0\0\0\3"),
        (37, b"\xff\xff\xff\xff"),
        (41, (48).to_bytes(8, "big")),
        (49, (9).to_bytes(8, "big")),
        (49, (10).to_bytes(8, "big")),
        (57, (0).to_bytes(8, "big")),
        (57, (1 << 63).to_bytes(8, "big")),
        (65, (0).to_bytes(4, "big")),
        (65, (0x48).to_bytes(4, "big")),
        (65, (0xFFFFFFFF).to_bytes(4, "big")),
        (69, (2).to_bytes(4, "big")),
        (73, (2).to_bytes(4, "big")),
        (77, (1_001).to_bytes(8, "big")),
    ],
)
def test_an_index_that_lies_is_seen_under_a_footer_that_fits(place: int, value: bytes) -> None:
    data = bytearray(object_of(chunk_of(5, 1), chunk_of(9, 1, 2)))
    data[place : place + len(value)] = value
    with pytest.raises(Corrupt):
        decode(sealed(data))


def test_another_objects_bytes_under_this_name_are_seen() -> None:
    other = WalId(make_wal_id(1_700_000_000_000, bytes(10)))
    with pytest.raises(Corrupt, match="and not"):
        decode(memoryview(object_of(chunk_of(5, 1))), wal_id=other)


def test_what_cannot_be_stored_is_a_bug() -> None:
    good = chunk_of(5, 1)
    wrong = [
        [],
        [good, good],
        [Chunk(StreamId(5), [], 0, 1, 1)],
        [Chunk(StreamId(5), [batch_of(1)], 2, 1, 1)],
        [Chunk(StreamId(5), [batch_of(1)], 1, 2, 1)],
        [Chunk(StreamId(-1), [batch_of(1)], 1, 1, 1)],
        [Chunk(StreamId(5), [b"short"], 1, 1, 1)],
    ]
    for chunks in wrong:
        with pytest.raises(AssertionError):
            encode(ID, DOMAIN, 0, chunks)
