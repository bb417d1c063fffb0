"""The scan's twin, its kernel and its walk over pieces tell the same story."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sides import native

from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec, compress, decompress_pieces
from lakelog.records.header import HEADER_BYTES
from lakelog.records.kernels import (
    DONE,
    INCOMPLETE,
    INT64_MAX,
    INT64_MIN,
    MALFORMED,
    MISPLACED,
    Limits,
    wrap_int64,
)
from lakelog.records.scan import (
    MISSING_KEY,
    find_bad,
    scan_in_python,
    scan_pieces,
    scan_records,
)

ANY: Limits = (0, INT64_MIN, INT64_MAX, 0)
blobs = st.none() | st.binary(max_size=80)
records = st.builds(
    Record,
    blobs,
    blobs,
    st.integers(-(1 << 40), 1 << 41),
    st.lists(st.tuples(st.binary(max_size=5), blobs), max_size=3),
)


def section(rows: list[Record]) -> memoryview:
    return memoryview(build_batch(rows, BatchOptions()))[HEADER_BYTES:]


@settings(deadline=None)
@given(rows=st.lists(records, min_size=1, max_size=8), keyed=st.integers(0, 1))
def test_a_scan_sees_every_record(rows: list[Record], keyed: int) -> None:
    data = section(rows)
    times = [row.timestamp_ms for row in rows]
    limits: Limits = (times[0], -1_000, 1_000, keyed)
    bad = [
        row
        for row in rows
        if (keyed and row.key is None)
        or (not -1_000 <= row.timestamp_ms <= 1_000 and row.timestamp_ms != -1)
    ]
    outcome = (DONE, len(data), len(rows), min(times), max(times), len(bad))
    assert scan_in_python(data, 0, 0, len(rows), limits) == outcome
    assert native().scan(data, 0, 0, len(rows), limits) == outcome
    listed = find_bad(iter((data,)), len(rows), limits, 100)
    assert [rows[index] for index, _ in listed] == bad
    assert [time == MISSING_KEY for _, time in listed] == [
        bool(keyed) and row.key is None for row in bad
    ]


@settings(deadline=None)
@given(rows=st.lists(records, min_size=1, max_size=5), data=st.data())
def test_kernel_and_twin_agree_on_damaged_records(rows: list[Record], data: st.DataObject) -> None:
    damaged = bytearray(section(rows))
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF)))
    view = memoryview(damaged)[: data.draw(st.integers(0, len(damaged)))]
    count = data.draw(st.sampled_from((len(rows), 1, 50)))
    twin = scan_in_python(view, 0, 0, count, ANY)
    assert native().scan(view, 0, 0, count, ANY) == twin


@settings(deadline=None)
@given(rows=st.lists(records, min_size=1, max_size=6), cuts=st.lists(st.integers(0, 900)))
def test_pieces_of_any_size_give_the_same_outcome(rows: list[Record], cuts: list[int]) -> None:
    data = section(rows)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = (data[start:end] for start, end in pairwise(edges))
    whole = scan_in_python(data, 0, 0, len(rows), ANY)
    assert scan_pieces(pieces, len(rows), ANY)[2:] == whole[2:]


@pytest.mark.parametrize(
    ("data", "count", "verdict"),
    [
        ("0c000000010100", 1, DONE),
        ("0c000000010100", 2, INCOMPLETE),
        ("0c0000000101", 1, INCOMPLETE),
        ("0c00000001010000", 1, MALFORMED),
        ("0c000002010100", 1, MISPLACED),
        ("0c000000030100", 1, MALFORMED),
        ("", 0, DONE),
        ("", 1, INCOMPLETE),
    ],
)
def test_each_verdict_has_its_bytes(data: str, count: int, verdict: int) -> None:
    view = memoryview(bytes.fromhex(data))
    assert scan_records(view, count, ANY)[0] == verdict
    assert scan_pieces(iter((view[:3], view[3:])), count, ANY)[0] == verdict


def test_timestamps_wrap_like_64_bit_numbers() -> None:
    assert wrap_int64(INT64_MAX + 1) == INT64_MIN
    assert wrap_int64(INT64_MIN - 1) == INT64_MAX
    data = section([Record(None, None, 5), Record(None, None, 7)])
    limits: Limits = (INT64_MAX, INT64_MIN, INT64_MAX, 0)
    outcome = scan_in_python(data, 0, 0, 2, limits)
    assert outcome[3:5] == (INT64_MIN + 1, INT64_MAX)
    assert native().scan(data, 0, 0, 2, limits) == outcome


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_a_huge_record_is_scanned_without_being_held(codec: Codec) -> None:
    row = Record(bytes(1_000), bytes(20 << 20), 5, [(b"h", bytes(3 << 20))])
    packed = memoryview(compress(codec, section([row, row])))
    tracemalloc.start()
    outcome = scan_pieces(decompress_pieces(codec, packed, 1 << 30), 2, (5, 0, 9, 1))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert outcome[0] == DONE
    assert outcome[2:] == (2, 5, 5, 0)
    assert peak_bytes < 1 << 20


@pytest.mark.parametrize("damage", ["key", "length", "order", "end"])
def test_a_huge_record_is_judged_like_a_small_one(damage: str) -> None:
    row = Record(bytes(100_000), bytes(100_000), 5, [(b"h", bytes(100_000))])
    data = bytearray(section([row]))
    count, verdict = 1, MALFORMED
    if damage == "key":
        # The key's length, three bytes behind the record's own length and three small fields.
        place = data.index(b"\xc0\x9a\x0c", 4)
        data[place : place + 3] = b"\xfe\xff\x7f"
    elif damage == "length":
        data[-1:] = b""
        verdict = INCOMPLETE
    elif damage == "order":
        data[5:6] = b"\x02"
        verdict = MISPLACED
    else:
        data += b"\0"
    view = memoryview(data)
    assert scan_records(view, count, ANY)[0] == verdict
    pieces = (view[start : start + 70_000] for start in range(0, len(view), 70_000))
    assert scan_pieces(pieces, count, ANY)[0] == verdict
