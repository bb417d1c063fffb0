"""Runs of batches as a Fetch answer holds them, and what they must decode to."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec
from lakelog.records.columns import decode_columns, view_array
from lakelog.records.fetched import FetchedRows
from lakelog.records.header import split_batches

ROOMY = 1 << 20
blobs = st.none() | st.binary(max_size=80)
records = st.builds(
    Record,
    blobs,
    blobs,
    st.integers(-(1 << 40), 1 << 41),
    st.lists(st.tuples(st.text(max_size=5).map(str.encode), blobs), max_size=3),
)


class Row(NamedTuple):
    """One record with its offset."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Batches with rising offsets, with gaps within them and between them."""
    made = []
    offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 4))):
        rows = draw(st.lists(records, max_size=5))
        deltas = sorted(
            draw(st.sets(st.integers(0, 20_000), min_size=len(rows), max_size=len(rows)))
        )
        last = draw(st.integers(deltas[-1] if deltas else 0, 30_000))
        options = BatchOptions(
            codec=draw(st.sampled_from(Codec)),
            base_offset=offset,
            offset_deltas=deltas or None,
            last_offset_delta=last,
            append_time_ms=draw(st.none() | st.integers(0, 1 << 41)),
            control=draw(st.integers(0, 4)) == 4,
        )
        made.append(build_batch(rows, options))
        offset += last + 1 + draw(st.integers(0, 3))
    return b"".join(made)


def joined(batches: Sequence[Sequence[Record]], options: BatchOptions) -> memoryview:
    """One batch after the other, offset after offset."""
    made = []
    offset = options.base_offset
    for rows in batches:
        made.append(build_batch(rows, replace(options, base_offset=offset)))
        offset += len(rows)
    return memoryview(b"".join(made))


def expected_rows(answer: memoryview, from_offset: int) -> list[Row]:
    """What the decoder of single batches says, record by record."""
    rows = []
    for batch in split_batches(answer):
        columns = decode_columns(batch, decompressed_bytes_max=ROOMY)
        if columns.header.control:
            continue
        for index, delta in enumerate(columns.offset_deltas.tolist()):
            key, value = columns.key(index), columns.value(index)
            row = Row(
                columns.header.base_offset + delta,
                int(columns.timestamps_ms[index]),
                None if key is None else bytes(key),
                None if value is None else bytes(value),
                [(name.decode(errors="replace"), held) for name, held in columns.headers(index)],
            )
            rows.append(row)
    return [row for row in rows if row.offset >= from_offset]


def rows_of(rows: FetchedRows) -> list[Row]:
    """The rows as Arrow reads the views, each view checked by Arrow first."""
    blobs = []
    for views, nulls in ((rows.key_views, rows.key_nulls), (rows.value_views, rows.value_nulls)):
        assert nulls is None or nulls.any()
        column = view_array(views, nulls, rows.data)
        column.validate(full=True)
        assert nulls is None or not views[nulls].any()
        blobs.append(column.to_pylist())
    lists = rows.header_lists()
    lists.validate(full=True)
    assert lists.type == header_type()
    headers = [[(one["key"], one["value"]) for one in each] for each in lists.to_pylist()]
    numbers = (rows.offsets.tolist(), rows.timestamps_ms.tolist())
    return [Row(*row) for row in zip(*numbers, *blobs, headers, strict=True)]


def header_type() -> pa.DataType:
    """The type that users know."""
    fields = [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
    return pa.list_(pa.struct(fields))
