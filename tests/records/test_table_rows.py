"""Batches become rows and batches again, and no consumer sees a difference."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import assign_fresh_schema_ids, index_by_name
from tests.profiles import examples
from tests.records.table_cases import (
    ROOMY,
    TIMESTAMPS_MS,
    Row,
    hostile_batches,
    rows_of,
    stored_batches,
)
from tests.sides import both, side

from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec
from lakelog.records.fetched_batches import walk_batches
from lakelog.records.header import HEADER_BYTES, parse_header
from lakelog.records.table_batches import batches_from_rows, exact_timestamps_ms
from lakelog.records.table_rows import RowBuilder, UnreadableBatchError, rows_from_batches
from lakelog.records.table_schema import (
    FIELD_IDS,
    TIMESTAMP_US_MAX,
    TIMESTAMP_US_MIN,
    table_schema,
)


def made_rows(batches: list[tuple[int, memoryview]]) -> pa.Table:
    rows = rows_from_batches(batches, partition=4, decompressed_bytes_max=ROOMY)
    rows.validate(full=True)
    assert rows.schema.equals(table_schema(views=True), check_metadata=True)
    return rows


def rebuilt(
    rows: pa.Table, *, start: int, end: int, batch_bytes_max: int = 1 << 20
) -> list[tuple[int, memoryview]]:
    """The rows' batches, which must tile [start, end)."""
    made = batches_from_rows(rows, start=start, end=end, batch_bytes_max=batch_bytes_max)
    found = []
    place = start
    for batch in made:
        header = parse_header(memoryview(batch))
        assert header.base_offset == place
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
        assert len(batch) <= batch_bytes_max or header.record_count == 1
        place += header.last_offset_delta + 1
        found.append((header.base_offset, memoryview(batch)))
    assert place == end
    return found


@both
@settings(deadline=None, max_examples=examples(80))
@given(
    batches=stored_batches(),
    cut=st.integers(0, 25),
    room=st.integers(HEADER_BYTES, 400),
    before=st.sampled_from([0, 1, 1 << 29, 1 << 33]),
    behind=st.sampled_from([1, 1 << 29, (1 << 31) + 5]),
)
def test_rows_come_back_as_the_same_records(
    compiled: bool,
    batches: list[tuple[int, memoryview]],
    cut: int,
    room: int,
    before: int,
    behind: int,
) -> None:
    with side(compiled):
        rows = made_rows(batches)
        # Chunks that begin in the middle of a buffer are what tables look like in practice.
        rows = pa.concat_tables([rows.slice(0, cut), rows.slice(cut)])
        expected = rows_of(batches)
        start = (expected[0].offset if expected else 10) - before
        end = (expected[-1].offset if expected else 10) + behind
        back = rebuilt(rows, start=start, end=end, batch_bytes_max=room)
        assert rows_of(back) == expected
        assert exact_timestamps_ms(rows).tolist() == [row.timestamp_ms for row in expected]


@both
def test_hostile_records_come_back(compiled: bool) -> None:
    with side(compiled):
        batches = hostile_batches()
        expected = rows_of(batches)
        rows = made_rows(batches)
        assert rows_of(rebuilt(rows, start=0, end=expected[-1].offset + 1)) == expected


PLAIN = BatchOptions()


def one_row(record: Record, options: BatchOptions = PLAIN) -> dict[str, object]:
    batch = memoryview(build_batch([record], options))
    (row,) = made_rows([(7, batch)]).cast(TIMES_AS_NUMBERS).to_pylist()
    assert isinstance(row, dict)
    return row


TIMES_AS_NUMBERS = table_schema().set(2, pa.field("timestamp", pa.int64(), nullable=False))


def test_an_ordinary_row_fills_the_columns_and_leaves_raw_null() -> None:
    record = Record(b"k", None, 1_700_000_000_123, [("ü".encode(), b"1"), (b"", None)])
    options = BatchOptions(producer_id=9, producer_epoch=1, base_sequence=5, append_time_ms=77)
    assert one_row(record, options) == {
        "partition": 4,
        "offset": 7,
        "timestamp": 77_000,
        "key": b"k",
        "value": None,
        "headers": [{"key": "ü", "value": b"1"}, {"key": "", "value": None}],
        "producer_id": None,
        "producer_epoch": None,
        "base_sequence": None,
        "attributes": 8,
        "record_crc": None,
        "raw": None,
    }


def test_a_header_key_that_is_no_text_is_replaced_and_kept_in_raw() -> None:
    row = one_row(Record(None, b"", 5, [(b"a\xff", b"1"), (b"b", None)]))
    assert row["headers"] == [{"key": "a�", "value": b"1"}, {"key": "b", "value": None}]
    assert row["raw"] == (5).to_bytes(8, "big") + b"\x04a\xff\x021\x02b\x01"


@pytest.mark.parametrize("stamp_ms", TIMESTAMPS_MS)
def test_a_timestamp_outside_its_column_is_clamped_and_kept_in_raw(stamp_ms: int) -> None:
    row = one_row(Record(None, None, stamp_ms))
    inside = TIMESTAMP_US_MIN <= stamp_ms * 1000 <= TIMESTAMP_US_MAX
    clamped = TIMESTAMP_US_MAX if stamp_ms > 0 else TIMESTAMP_US_MIN
    assert row["timestamp"] == (stamp_ms * 1000 if inside else clamped)
    assert row["raw"] == (None if inside else stamp_ms.to_bytes(8, "big", signed=True))


def test_a_value_larger_than_the_limit_is_a_batch_of_its_own() -> None:
    records = [Record(b"k", b"v"), Record(None, bytes(range(256)) * 65_536), Record(b"k", b"v")]
    batches = [(0, memoryview(build_batch(records, BatchOptions())))]
    back = rebuilt(made_rows(batches), start=0, end=3, batch_bytes_max=1000)
    assert [base for base, _ in back] == [0, 1, 2]
    assert rows_of(back) == rows_of(batches)


def test_what_does_not_shrink_stays_within_the_limit_uncompressed() -> None:
    noise = b"".join(bytes([(at * at * 7 + at * 31) % 251]) for at in range(90))
    records = [Record(None, noise), Record(None, noise[::-1])]
    batches = [(0, memoryview(build_batch(records, BatchOptions(codec=Codec.GZIP))))]
    for room in range(200, 330):
        assert rows_of(rebuilt(made_rows(batches), start=0, end=2, batch_bytes_max=room))


def test_rows_outside_the_range_are_left_out() -> None:
    records = [Record(None, b"%d" % number) for number in range(10)]
    batches = [(20, memoryview(build_batch(records, BatchOptions())))]
    back = rows_of(rebuilt(made_rows(batches), start=23, end=27))
    assert [(row.offset, row.value) for row in back] == [
        (at, b"%d" % (at - 20)) for at in range(23, 27)
    ]


def test_a_range_without_rows_is_one_empty_batch() -> None:
    ((base, batch),) = rebuilt(made_rows([]), start=5, end=9)
    assert (base, parse_header(batch).record_count) == (5, 0)


@pytest.mark.parametrize(("deltas", "last"), [((0, 0), 1), ((1, 0), 1), ((-1, 0), 1), ((0, 5), 4)])
def test_offsets_that_do_not_rise_within_the_batch_are_refused(
    deltas: tuple[int, int], last: int
) -> None:
    options = BatchOptions(offset_deltas=deltas, last_offset_delta=last)
    bad = memoryview(build_batch([Record(None, b"a"), Record(None, b"b")], options))
    good = memoryview(build_batch([Record(None, b"a")], BatchOptions()))
    with pytest.raises(UnreadableBatchError) as caught:
        rows_from_batches([(0, good), (1, bad)], partition=0, decompressed_bytes_max=ROOMY)
    assert caught.value.base_offset == 1


def test_a_bomb_and_broken_records_are_refused_with_their_offset() -> None:
    bomb = build_batch([Record(None, bytes(1 << 20))], BatchOptions(codec=Codec.ZSTD))
    broken = build_batch([Record(None, b"abc")], BatchOptions())[:-2]
    for batch in (bomb, broken):
        with pytest.raises(UnreadableBatchError, match=r"the batch of the offsets \[9, 10\)"):
            rows_from_batches([(9, memoryview(batch))], partition=0, decompressed_bytes_max=1000)


@both
@pytest.mark.parametrize("bad", [0, 2, 4])
def test_batches_beside_one_that_cannot_be_read_are_kept(compiled: bool, bad: int) -> None:
    builder = RowBuilder(partition=0, decompressed_bytes_max=ROOMY)
    empty = memoryview(build_batch([], BatchOptions(last_offset_delta=1)))
    for number in range(5):
        builder.add(20 * number, empty)
        records = [Record(b"k", b"v%d" % number)] * 9
        deltas = (0, 1, 2, 3, 5, 4, 6, 7, 8) if number == bad else tuple(range(9))
        options = BatchOptions(offset_deltas=deltas, last_offset_delta=8)
        builder.add(20 * number + 2, memoryview(build_batch(records, options)))
    held_bytes = builder.size_bytes
    with side(compiled):
        with pytest.raises(UnreadableBatchError) as caught:
            builder.take()
        assert (caught.value.base_offset, caught.value.end) == (20 * bad + 2, 20 * bad + 11)
        assert builder.size_bytes == held_bytes * 4 // 5
        rows = builder.take()
    kept = [number for number in range(5) if number != bad]
    assert rows["offset"].to_pylist() == [
        20 * number + 2 + delta for number in kept for delta in range(9)
    ]
    assert rows["value"].to_pylist() == [b"v%d" % number for number in kept for _ in range(9)]
    assert builder.size_bytes == 0
    assert builder.take().num_rows == 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_batches_are_taken_until_so_much_is_held(codec: Codec) -> None:
    options = [BatchOptions(codec=codec, base_offset=3 * number) for number in range(9)]
    stored = [build_batch([Record(b"k", b"v" * 99)] * 3, option) for option in options]
    data = memoryview(b"".join(stored))
    batches = walk_batches(data)
    builder = RowBuilder(partition=0, decompressed_bytes_max=ROOMY)
    offsets, first, taken = [], 0, []
    while first < len(batches):
        part = batches.part(first, len(batches))
        taken.append(builder.add_batches(data, part, bytes_max=1_000))
        first += taken[-1]
        offsets += builder.take()["offset"].to_pylist()
    assert taken == [4, 4, 1]  # of a little more than 300 bytes each
    assert offsets == list(range(27))


@both
def test_a_record_count_that_is_a_lie_names_its_batch(compiled: bool) -> None:
    good = memoryview(build_batch([Record(None, b"a")], BatchOptions()))
    for count in (-1, 0, 2, 1 << 30):
        lie = bytearray(good)
        lie[57:61] = count.to_bytes(4, "big", signed=True)
        with side(compiled), pytest.raises(UnreadableBatchError) as caught:
            rows_from_batches(
                [(0, good), (1, memoryview(lie))], partition=0, decompressed_bytes_max=ROOMY
            )
        assert caught.value.base_offset == 1


def test_log_append_times_that_differ_are_different_batches() -> None:
    batches = []
    for base, stamp_ms in ((0, 5), (2, 5), (4, 6)):
        options = BatchOptions(append_time_ms=stamp_ms)
        records = [Record(None, b"a", 1), Record(None, b"b", 2)]
        batches.append((base, memoryview(build_batch(records, options))))
    back = rebuilt(made_rows(batches), start=0, end=6)
    assert [base for base, _ in back] == [0, 4]
    assert [row.timestamp_ms for row in rows_of(back)] == [5, 5, 5, 5, 6, 6]


def test_ids_are_those_of_a_new_iceberg_table() -> None:
    schema = pyarrow_to_schema(table_schema())
    fresh = assign_fresh_schema_ids(schema)
    assert index_by_name(schema) == index_by_name(fresh)
    assert FIELD_IDS.items() <= index_by_name(fresh).items()
    assert set(FIELD_IDS.values()) == set(index_by_name(fresh).values())
    assert [field.required for field in fresh.fields] == [
        not field.nullable for field in table_schema()
    ]


def test_rows_are_ordered_as_they_were_sent() -> None:
    rows: list[Row] = rows_of(hostile_batches())
    assert all(one.offset < two.offset for one, two in pairwise(rows))
