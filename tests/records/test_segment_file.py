"""A segment is what document 000 says, byte by byte, and shows every damage that could matter."""

from io import BytesIO
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.records.table_cases import hostile_batches

from lakelog.model.failures import Corrupt
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.header import parse_header
from lakelog.records.segment_file import (
    FOOTER,
    HEADER,
    INDEX_ENTRY,
    INDEX_HEADER,
    UINT32_MAX,
    IndexEntry,
    SegmentFacts,
    SegmentWriter,
    decode,
    encode_index,
    parse_index,
    parse_segment,
    tail_bytes,
    verify_batches,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "segment-1.txt"
T_MS = 1_700_000_000_000
BATCHES = [
    build_batch(
        [Record(b"k", b"v", T_MS), Record(None, None, T_MS + 7, [(b"h", None)])], BatchOptions()
    ),
    build_batch(
        [Record(b"key", b"", T_MS + 3)],
        BatchOptions(producer_id=7, producer_epoch=1, base_sequence=2),
    ),
    build_batch([], BatchOptions(last_offset_delta=4, append_time_ms=T_MS + 9)),
]


def written(
    batches: list[bytes], *, start: int = 41, index_interval_bytes: int = 100
) -> tuple[bytes, SegmentFacts]:
    file = BytesIO()
    writer = SegmentWriter(file, created_ms=T_MS + 123, index_interval_bytes=index_interval_bytes)
    for at in range(0, len(batches), 2):  # by twos, so that calls and batches are not the same
        start = writer.add([memoryview(batch) for batch in batches[at : at + 2]], start)
    facts = writer.close()
    return file.getvalue(), facts


def golden() -> bytes:
    lines = [line.partition("#")[0] for line in GOLDEN.read_text().splitlines()]
    return b"".join(bytes.fromhex(line) for line in lines)


def as_stored(batch: memoryview) -> bytes:
    """A batch without what is written anew whenever it is served: base offset and leader epoch."""
    return bytes(batch[8:12]) + bytes(batch[16:])


def test_the_bytes_are_those_of_the_golden_file() -> None:
    data, facts = written(BATCHES)
    assert data == golden()
    assert facts == SegmentFacts(41, 49, 3, 3, 300, T_MS + 9)


def test_the_golden_file_reads_back() -> None:
    found, batches = decode(memoryview(golden()))
    assert (found.start, found.end, found.created_ms, found.message_count) == (
        41,
        49,
        T_MS + 123,
        3,
    )
    assert found.entries == (IndexEntry(41, 32), IndexEntry(44, 32 + 80 + 71))
    assert [parse_header(one).base_offset for one in batches] == [41, 43, 44]
    assert [as_stored(one) for one in batches] == [as_stored(memoryview(one)) for one in BATCHES]


def test_the_checksum_is_the_ieee_one_of_all_batches() -> None:
    data, _ = written(BATCHES)
    body = data[32 : 32 + sum(len(batch) for batch in BATCHES)]
    assert FOOTER.unpack(data[-16:]) == (crc32(body), 48, b"END!")


def test_sizes_are_those_of_the_document() -> None:
    sizes = (HEADER.size, FOOTER.size, INDEX_HEADER.size, INDEX_ENTRY.size)
    assert sizes == (32, 16, 16, 12)


def test_without_its_index_a_segment_and_its_index_are_the_two_files_of_the_document() -> None:
    data, _ = written(BATCHES)
    index_start = len(data) - 16 - 16 - 2 * 12
    header = bytearray(data[:32])
    header[28:32] = bytes(4)
    alone = bytes(header) + data[32:index_start] + data[-16:]
    found, batches = decode(memoryview(alone))
    assert (len(batches), found.entries) == (3, ())
    entries = parse_index(memoryview(data)[index_start:-16], end=49)
    assert encode_index(entries, end=49) == data[index_start:-16]


def test_hostile_batches_come_back_as_they_were() -> None:
    made = [bytes(batch) for _, batch in hostile_batches()]
    data, facts = written(made, index_interval_bytes=1000)
    found, batches = decode(memoryview(data))
    assert [as_stored(one) for one in batches] == [as_stored(memoryview(one)) for one in made]
    assert len(found.entries) > 5
    assert facts.size_bytes == len(data)
    assert facts.max_timestamp_ms == (1 << 63) - 1


def test_a_count_beyond_its_field_is_the_greatest_there_is() -> None:
    huge = bytearray(BATCHES[0])
    huge[57:61] = b"\x7f\xff\xff\xff"
    file = BytesIO()
    writer = SegmentWriter(file, created_ms=0)
    assert writer.add([memoryview(huge)] * 3, 0) == 6
    assert writer.close().record_count == 3 * ((1 << 31) - 1)
    assert HEADER.unpack_from(file.getvalue())[4] == UINT32_MAX
    wide = [IndexEntry(0, 32), IndexEntry(1 << 40, 200)]
    assert INDEX_HEADER.unpack_from(encode_index(wide, end=(1 << 40) + 1))[3] == UINT32_MAX


def test_a_batch_that_takes_no_offset_is_refused() -> None:
    odd = bytearray(BATCHES[0])
    odd[23:27] = b"\xff\xff\xff\xff"
    with pytest.raises(Corrupt):
        SegmentWriter(BytesIO(), created_ms=0).add([memoryview(odd)], 0)


def test_every_flipped_bit_of_the_whole_is_seen_but_that_of_the_time_it_was_made() -> None:
    data, _ = written(BATCHES)
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            if 20 <= place < 28:
                decode(memoryview(flipped))
            else:
                with pytest.raises(Corrupt):
                    decode(memoryview(flipped))


def test_every_cut_is_seen() -> None:
    data, _ = written(BATCHES)
    for end in range(len(data)):
        with pytest.raises(Corrupt):
            decode(memoryview(data)[:end])
        with pytest.raises(Corrupt):
            decode(memoryview(data)[end + 1 :])


def read_parts(data: memoryview) -> list[bytes]:
    """All batches, as a ranged reader gets them: both ends, then part by part."""
    head = data[: HEADER.size]
    found = parse_segment(head, data[-tail_bytes(head) :], size_bytes=len(data))
    if not found.entries:
        raise Corrupt("no index")
    offsets = [*(one.offset for one in found.entries), found.end]
    places = [*(one.position for one in found.entries), found.body_end]
    batches: list[bytes] = []
    for at in range(len(found.entries)):
        part = data[places[at] : places[at + 1]]
        some = verify_batches(part, start=offsets[at], end=offsets[at + 1])
        batches += [as_stored(one) for one in some]
    return batches


def test_every_flipped_bit_is_seen_in_the_part_that_is_read() -> None:
    """But for leader epochs, and for the count, the time and the CRC-32, which are the whole's."""
    data, _ = written(BATCHES)
    expected = read_parts(memoryview(data))
    starts = [32, 32 + 80, 32 + 80 + 71]
    blind = {start + 12 + byte for start in starts for byte in range(4)}
    blind |= set(range(16, 28)) | set(range(len(data) - 16, len(data) - 12))
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            if place in blind:
                assert read_parts(memoryview(flipped)) == expected
            else:
                with pytest.raises(Corrupt):
                    read_parts(memoryview(flipped))


def test_the_ends_of_a_file_that_is_no_segment_are_corrupt() -> None:
    for data in (b"", bytes(31), bytes(32), bytes(500), b"KAFS" + bytes(28)):
        with pytest.raises(Corrupt):
            decode(memoryview(data))
    lying = bytearray(golden())
    lying[28:32] = b"\xff\xff\xff\xff"  # so many index entries would not fit any file
    with pytest.raises(Corrupt):
        decode(memoryview(lying))


@pytest.mark.parametrize(
    "entries",
    [
        [IndexEntry(41, 32), IndexEntry(41, 183)],
        [IndexEntry(41, 32), IndexEntry(44, 90)],
        [IndexEntry(41, 32), IndexEntry(44, 190)],
        [IndexEntry(42, 32), IndexEntry(44, 183)],
        [IndexEntry(41, 33), IndexEntry(44, 183)],
        [IndexEntry(41, 32), IndexEntry(49, 183)],
    ],
)
def test_an_index_that_does_not_fit_is_corrupt(entries: list[IndexEntry]) -> None:
    data, _ = written(BATCHES)
    index = encode_index(entries, end=49)
    other = data[: -16 - len(index)] + index + data[-16:]
    with pytest.raises(Corrupt):
        decode(memoryview(other))


@settings(max_examples=examples(50), deadline=None)
@given(
    counts=st.lists(st.integers(1, 20), min_size=1, max_size=30),
    start=st.integers(0, 1 << 40),
    interval=st.integers(0, 2000),
)
def test_whatever_is_written_reads_back(counts: list[int], start: int, interval: int) -> None:
    made = [
        build_batch([Record(b"k", b"v" * count, 5)] * count, BatchOptions()) for count in counts
    ]
    data, facts = written(made, start=start, index_interval_bytes=interval)
    found, batches = decode(memoryview(data))
    stored = [as_stored(memoryview(one)) for one in made]
    assert [as_stored(one) for one in batches] == stored == read_parts(memoryview(data))
    assert (found.start, found.end) == (start, start + sum(counts)) == (facts.start, facts.end)
    gaps = [after.position - before.position for before, after in pairwise(found.entries)]
    assert all(gap >= interval for gap in gaps)


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=400), st.integers(0, 300), st.integers(0, 60))
def test_no_bytes_do_anything_but_read_back_or_be_corrupt(noise: bytes, at: int, cut: int) -> None:
    data = golden()
    mixed = data[:at] + noise + data[at + cut :]
    try:
        found, batches = decode(memoryview(mixed))
    except Corrupt:
        return
    assert found.end - found.start >= len(batches) > 0
