"""Batches that we build are read by others as meant, and the other way round, byte for byte."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.records.oracles import BUILDERS, READERS, Row, build_elsewhere, read_rows, speaks
from tests.sides import both, side

from lakelog.records.build import (
    BatchOptions,
    Record,
    RecordBlock,
    build_batch,
    build_from_block,
    plan_batches,
    record_bytes_bound,
)
from lakelog.records.codecs import Codec
from lakelog.records.columns import decode_columns
from lakelog.records.header import HEADER_BYTES, parse_header

ROWS = [
    Record(b"k", b"v", 1_700_000_000_000, [(b"a", b"1"), (b"a", None), (b"", b"")]),
    Record(None, None, 1_700_000_000_005),
    Record(b"", b"", 1_699_999_999_000, [(b"z", bytes(300))]),
    Record(bytes(70), bytes(9_000), 1_800_000_000_000),
]
PLAIN = BatchOptions()
blobs = st.none() | st.binary(max_size=80)
texts = st.text(max_size=4).map(str.encode)
records = st.builds(
    Record,
    blobs,
    blobs,
    st.integers(0, 1 << 41),
    st.lists(st.tuples(texts, blobs), max_size=3),
)


def expected(rows: list[Record]) -> list[Row]:
    return [
        (offset, row.timestamp_ms, row.key, row.value, list(row.headers))
        for offset, row in enumerate(rows)
    ]


def spoken(programs: Iterable[str]) -> list[tuple[str, Codec]]:
    """Every program with every codec that it has here."""
    return [(name, codec) for name in programs for codec in Codec if speaks(name, codec)]


@pytest.mark.parametrize(("reader", "codec"), spoken(READERS))
def test_others_read_what_we_build(reader: str, codec: Codec) -> None:
    assert read_rows(reader, build_batch(ROWS, replace(PLAIN, codec=codec))) == expected(ROWS)


@pytest.mark.parametrize(("builder", "codec"), spoken(BUILDERS))
def test_we_read_what_others_build(builder: str, codec: Codec) -> None:
    batch = memoryview(build_elsewhere(builder, ROWS, codec))
    columns = decode_columns(batch, decompressed_bytes_max=1 << 20)
    for index, row in enumerate(ROWS):
        assert columns.key(index) == row.key
        assert columns.value(index) == row.value
        assert columns.timestamps_ms[index] == row.timestamp_ms
        assert columns.headers(index) == list(row.headers)


@pytest.mark.parametrize("builder", BUILDERS)
@settings(deadline=None)
@given(rows=st.lists(records, min_size=1, max_size=6))
def test_the_bytes_are_those_that_others_build(builder: str, rows: list[Record]) -> None:
    ours, theirs = build_batch(rows, PLAIN), build_elsewhere(builder, rows, 0)
    # The leader epoch is nobody's: kafka-python and aiokafka write other values there.
    assert (ours[:12], ours[16:]) == (theirs[:12], theirs[16:])


def test_every_option_is_written() -> None:
    options = BatchOptions(
        codec=Codec.LZ4,
        base_offset=100,
        partition_leader_epoch=3,
        producer_id=7,
        producer_epoch=8,
        base_sequence=9,
        append_time_ms=55,
        transactional=True,
        control=True,
        offset_deltas=(0, 2, 4, 6),
        last_offset_delta=8,
    )
    header = parse_header(memoryview(build_batch(ROWS, options)))
    assert (header.base_offset, header.partition_leader_epoch) == (100, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 8, 9)
    assert header.attributes == 0x20 | 0x10 | 0x08 | 3
    assert (header.last_offset_delta, header.record_count) == (8, 4)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (1_700_000_000_000, 55)


def block_of(rows: list[Record]) -> RecordBlock:
    """The rows as packed columns."""
    stores: list[bytearray] = [bytearray() for _ in range(4)]

    def put(store: int, blob: bytes | None) -> tuple[int, int]:
        if blob is None:
            return -1, -1
        stores[store] += blob
        return len(stores[store]) - len(blob), len(stores[store])

    numbers: list[tuple[int, ...]] = []
    headers: list[tuple[int, ...]] = []
    for delta, row in enumerate(rows):
        first = len(headers)
        headers += [(*put(2, key), *put(3, value)) for key, value in row.headers]
        places = (*put(0, row.key), *put(1, row.value), first, len(headers))
        numbers.append((row.timestamp_ms, delta, *places))
    keys, values, header_keys, header_values = (
        np.frombuffer(bytes(store), np.uint8) for store in stores
    )
    return RecordBlock(
        np.array(numbers, np.int64).reshape(-1, 8).T.copy(),
        (keys, values, header_keys, header_values),
        np.array(headers, np.int64).reshape(-1, 4).T.copy(),
    )


@both
@settings(deadline=None)
@given(rows=st.lists(records, max_size=6), codec=st.sampled_from(Codec))
def test_columns_and_rows_build_the_same_bytes(
    compiled: bool, rows: list[Record], codec: Codec
) -> None:
    options = BatchOptions(codec=codec, producer_id=5, producer_epoch=0, base_sequence=2)
    block = block_of(rows)
    with side(compiled):
        assert build_from_block(block, options) == build_batch(rows, options)
    if rows:
        size = len(build_batch(rows, PLAIN)) - HEADER_BYTES
        assert size <= int(record_bytes_bound(block).sum())


@settings(deadline=None)
@given(rows=st.lists(records, min_size=1, max_size=12), bytes_max=st.integers(62, 600))
def test_planned_batches_cover_all_rows_within_the_limit(
    rows: list[Record], bytes_max: int
) -> None:
    ranges = plan_batches(block_of(rows), bytes_max)
    assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert ranges[-1][1] == len(rows)
    for start, end in ranges:
        assert start < end
        assert end == start + 1 or len(build_batch(rows[start:end], PLAIN)) <= bytes_max
