"""Columns give back every field of every record, from any codec, by kernel and twin alike."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.records import mend
from tests.sides import both, side

from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec, OutputTooLargeError
from lakelog.records.columns import RecordColumns, decode_columns
from lakelog.records.header import MalformedBatchError

ROOMY = 1 << 20
blobs = st.none() | st.binary(max_size=80)
records = st.builds(
    Record,
    blobs,
    blobs,
    st.integers(-(1 << 40), 1 << 41),
    st.lists(st.tuples(st.binary(max_size=5), blobs), max_size=3),
)


def rows_of(columns: RecordColumns) -> list[Record]:
    found = []
    for index in range(len(columns)):
        key, value = columns.key(index), columns.value(index)
        row = Record(
            None if key is None else bytes(key),
            None if value is None else bytes(value),
            int(columns.timestamps_ms[index]),
            columns.headers(index),
        )
        found.append(row)
    return found


@both
@settings(deadline=None)
@given(rows=st.lists(records, max_size=6), codec=st.sampled_from(Codec))
def test_every_field_comes_back(compiled: bool, rows: list[Record], codec: Codec) -> None:
    with side(compiled):
        batch = memoryview(build_batch(rows, BatchOptions(codec=codec)))
        columns = decode_columns(batch, decompressed_bytes_max=ROOMY)
        assert rows_of(columns) == rows
        assert columns.offset_deltas.tolist() == list(range(len(rows)))
        places = columns.header_places()
    headers = [header for row in rows for header in row.headers]
    found = [
        (bytes(columns.data[a:b]), None if c < 0 else bytes(columns.data[c:d]))
        for a, b, c, d in places.T.tolist()
    ]
    assert found == headers


def test_holes_are_reported_and_not_judged() -> None:
    options = BatchOptions(offset_deltas=(2, 5), last_offset_delta=9)
    rows = [Record(b"a", b"1", 1), Record(b"b", b"2", 2)]
    columns = decode_columns(memoryview(build_batch(rows, options)), decompressed_bytes_max=ROOMY)
    assert columns.offset_deltas.tolist() == [2, 5]
    assert columns.header.last_offset_delta == 9


def test_a_batch_without_records_has_empty_columns() -> None:
    batch = memoryview(build_batch([], BatchOptions(last_offset_delta=4)))
    columns = decode_columns(batch, decompressed_bytes_max=ROOMY)
    assert len(columns) == 0
    assert columns.header_places().shape == (4, 0)


def test_log_append_time_is_every_records_time() -> None:
    rows = [Record(None, b"1", 1), Record(None, b"2", 2)]
    batch = memoryview(build_batch(rows, BatchOptions(append_time_ms=77)))
    columns = decode_columns(batch, decompressed_bytes_max=ROOMY)
    assert np.array_equal(columns.timestamps_ms, [77, 77])


@pytest.mark.parametrize("count", [-1, 3, 1 << 30])
def test_a_count_that_cannot_be_is_refused_before_anything_is_made(count: int) -> None:
    batch = bytearray(build_batch([Record(None, b"x", 1)], BatchOptions()))
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedBatchError):
        decode_columns(memoryview(batch), decompressed_bytes_max=ROOMY)


@both
@pytest.mark.parametrize("place", range(61, 74))
def test_damaged_records_are_refused(compiled: bool, place: int) -> None:
    batch = bytearray(build_batch([Record(b"k", b"v", 1, [(b"h", b"i")])], BatchOptions()))
    harmless = {62, 63, 64, 66, 68, 71, 73}  # attributes, deltas and the blobs' own bytes
    batch[place] ^= 0x41
    mend(batch)
    with side(compiled):
        if place in harmless:
            assert len(decode_columns(memoryview(batch), decompressed_bytes_max=ROOMY)) == 1
        else:
            with pytest.raises(MalformedBatchError):
                decode_columns(memoryview(batch), decompressed_bytes_max=ROOMY)


def test_an_unknown_codec_and_too_much_output_are_refused() -> None:
    batch = bytearray(build_batch([Record(None, bytes(5_000), 1)], BatchOptions(codec=Codec.ZSTD)))
    with pytest.raises(OutputTooLargeError):
        decode_columns(memoryview(batch), decompressed_bytes_max=5_000)
    batch[22] = 6
    with pytest.raises(MalformedBatchError):
        decode_columns(memoryview(batch), decompressed_bytes_max=ROOMY)
