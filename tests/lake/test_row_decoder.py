"""Rows of a read: any batch that the log may hold gives what a consumer reads of it."""

import io

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lake.stage import ALL, TOPIC_NAME, listed, values_of
from tests.profiles import examples
from tests.records.table_cases import ROOMY, rows_of, stored_batches

from lakelog.lake.read.read_request import arrow_schema
from lakelog.lake.read.row_decoder import (
    BATCH_BYTES_MAX,
    BATCH_BYTES_MIN,
    RowMaker,
    SmallBatches,
    cut,
)
from lakelog.records.table_file import TableFile, TableFileWriter
from lakelog.records.table_rows import rows_from_batches
from lakelog.records.table_schema import TableFileOrigin


def reread(rows: pa.Table, sources: tuple[str, ...]) -> pa.Table:
    """The rows as they come back from a data file."""
    sink = io.BytesIO()
    origin = TableFileOrigin(1, bytes(16), 3, "task", 0, 1 << 62, 1 << 20)
    writer = TableFileWriter(sink, origin)
    writer.write(rows)
    facts = writer.close()
    data = memoryview(sink.getvalue())
    file = TableFile.open(data, size_bytes=facts.size_bytes)
    (group,) = file.row_groups
    return file.read(0, data[group.byte_start : group.byte_end], columns=sources)


@given(stored_batches(), st.permutations(ALL), st.integers(1, len(ALL)), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_any_columns_of_any_batches_are_what_a_consumer_reads(
    batches: list[tuple[int, memoryview]], order: list[str], count: int, from_file: bool
) -> None:
    columns = order[:count]
    maker = RowMaker(columns, topic=TOPIC_NAME, partition=3)
    rows = rows_from_batches(batches, partition=3, decompressed_bytes_max=ROOMY)
    expected = list(values_of(rows_of(batches), 3))
    if from_file and rows.num_rows:
        rows = reread(rows, maker.sources())
    for start, end in ((0, 1 << 62), (batches[0][0] + 2 if batches else 0, 1 << 41)):
        made = list(maker.made(rows, start=start, end=end))
        table = pa.Table.from_batches(made, schema=arrow_schema(columns))
        table.validate(full=True)
        kept = [row for row in expected if start <= int(str(row["offset"])) < end]
        assert listed(table) == [{name: row[name] for name in columns} for row in kept]


def large(rows: int, row_bytes: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([bytes(row_bytes)] * rows, pa.binary())})


def test_a_batch_that_is_too_large_is_cut_into_equal_parts() -> None:
    parts = list(cut(large(10, 3 << 20)))
    assert sum(one.num_rows for one in parts) == 10
    assert all(one.nbytes <= BATCH_BYTES_MAX for one in parts)
    assert len(list(cut(large(1, 40 << 20)))) == 1, "a row is not cut"
    assert len(list(cut(large(10, 10)))) == 1


@pytest.mark.parametrize(("each", "together"), [(1 << 20, 4), (5 << 20, 1), (3 << 20, 2)])
def test_small_batches_are_gathered(each: int, together: int) -> None:
    held = SmallBatches()
    found = [held.add(large(1, each)) for _ in range(together)]
    assert found[:-1] == [None] * (together - 1)
    assert found[-1] is not None
    assert found[-1].nbytes >= BATCH_BYTES_MIN
    assert held.take() is None
    assert held.add(large(1, 10)) is None
    rest = held.take()
    assert rest is not None
    assert rest.num_rows == 1
