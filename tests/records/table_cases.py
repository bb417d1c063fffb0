"""Batches that are hard on a table, and what is in a batch, for the tests of tables."""

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec
from lakelog.records.columns import decode_columns
from lakelog.records.header import batch_crc, parse_header

ROOMY = 1 << 27
EARLIEST_MS = -62_135_424_000_000
YEAR_10000_MS = 253_402_300_800_000
TIMESTAMPS_MS = (
    -(1 << 63),
    EARLIEST_MS - 1,
    EARLIEST_MS,
    -1,
    0,
    1_700_000_000_123,
    YEAR_10000_MS - 1,
    YEAR_10000_MS,
    (1 << 63) - 1,
)


class Row(NamedTuple):
    """All that a consumer sees of a record."""

    offset: int
    timestamp_ms: int
    log_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


def rows_of(batches: Sequence[tuple[int, memoryview]]) -> list[Row]:
    """What a consumer reads from these batches, whose CRCs must be right."""
    found = []
    for base_offset, batch in batches:
        assert parse_header(batch).crc == batch_crc(batch)
        columns = decode_columns(batch, decompressed_bytes_max=ROOMY)
        for index in range(len(columns)):
            key, value = columns.key(index), columns.value(index)
            found.append(
                Row(
                    base_offset + int(columns.offset_deltas[index]),
                    int(columns.timestamps_ms[index]),
                    columns.header.log_append_time,
                    None if key is None else bytes(key),
                    None if value is None else bytes(value),
                    columns.headers(index),
                )
            )
    return found


def anchored(records: Sequence[Record]) -> list[Record]:
    """The records with a first timestamp from which every other can be counted in 64 bits."""
    return [record._replace(timestamp_ms=0) for record in records[:1]] + list(records[1:])


def hostile_batches(
    stamps_ms: Sequence[int] = TIMESTAMPS_MS,
) -> list[tuple[int, memoryview]]:
    """The matrix of rule 11: every bound, with and without headers, for every codec."""
    headers = (
        (),
        [(b"\xff\xfe", None), (b"\xff\xfe", b"\xff"), (b"", b""), (b"\xed\xa0\x80", None)],
    )
    records = [
        Record(key, value, stamp_ms, headers[at % 2])
        for at, (key, value, stamp_ms) in enumerate(
            (key, value, stamp_ms)
            for stamp_ms in stamps_ms
            for key in (None, b"", b"\xff\xfe", b"k" * 13)
            for value in (None, b"", b"v" * 12, b"\x80" * 300)
        )
    ]
    records = anchored([Record(None, None), *records])
    many = Record(b"k", b"v", 1000, [(b"\x00", b"x")] * 10_000)
    made = [(3, memoryview(build_batch([many], BatchOptions())))]
    base_offset = 4
    for codec in Codec:
        for append_time_ms in (None, 7, (1 << 63) - 1):
            options = BatchOptions(codec=codec, append_time_ms=append_time_ms)
            made.append((base_offset, memoryview(build_batch(records, options))))
            base_offset += len(records)
    return made


_blobs = st.none() | st.binary(max_size=30)
_stamps = st.sampled_from(TIMESTAMPS_MS) | st.integers(-(1 << 63), (1 << 63) - 1)
_records = st.builds(
    Record,
    _blobs,
    _blobs,
    _stamps,
    st.lists(st.tuples(st.binary(max_size=6) | st.just(b"text"), _blobs), max_size=3),
)


@st.composite
def stored_batches(draw: st.DrawFn) -> list[tuple[int, memoryview]]:
    """Batches of one stream as the log may hold them, with holes within and between them."""
    made = []
    base_offset = draw(st.integers(0, 1 << 40))
    for some in draw(st.lists(st.lists(_records, max_size=5), max_size=5)):
        records = some if len(some) == 1 else anchored(some)
        deltas, delta = [], -1
        for _ in records:
            delta += draw(st.integers(1, 3))
            deltas.append(delta)
        last = delta + draw(st.integers(0 if records else 1, 2))
        options = BatchOptions(
            codec=draw(st.sampled_from(Codec)),
            offset_deltas=deltas,
            last_offset_delta=last,
            append_time_ms=draw(st.none() | _stamps),
            producer_id=draw(st.sampled_from([-1, 7])),
        )
        made.append((base_offset, memoryview(build_batch(records, options))))
        base_offset += last + 1 + draw(st.sampled_from([0, 0, 1, 1 << 33]))
    return made
