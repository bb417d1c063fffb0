"""Arrow tables and record batches turn into each other without loss."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from lakelog.records import kernels
from lakelog.records.arrow import batches_from_table, records_schema, table_from_batches
from lakelog.records.build import BatchOptions
from lakelog.records.codecs import Codec
from lakelog.records.header import batch_crc, parse_header

ROOMY = 1 << 24
blobs = st.none() | st.binary(max_size=40)
rows = st.fixed_dictionaries(
    {
        "timestamp_ms": st.integers(0, 1 << 41),
        "key": blobs,
        "value": blobs,
        "headers": st.lists(
            st.fixed_dictionaries({"key": st.binary(max_size=20), "value": blobs}), max_size=3
        ),
    }
)


@pytest.mark.parametrize("compiled", [False, True])
@settings(deadline=None, max_examples=examples(60))
@given(
    made=st.lists(st.tuples(rows, st.integers(1, 3)), max_size=12),
    codec=st.sampled_from(Codec),
    cut=st.integers(0, 12),
)
def test_a_table_comes_back_row_by_row(
    compiled: bool, made: list[tuple[dict[str, object], int]], codec: Codec, cut: int
) -> None:
    offset, listed = 40, []
    for row, step in made:
        offset += step
        listed.append({"offset": offset, **row})
    table = pa.Table.from_pylist(listed, schema=records_schema())
    # Chunks that begin in the middle of a buffer are what tables look like in practice.
    table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_kernels", kernels.load() if compiled else None)
        batches = batches_from_table(table, BatchOptions(codec=codec), batch_bytes_max=300)
        views = [memoryview(batch) for batch in batches]
        back = table_from_batches(views, decompressed_bytes_max=ROOMY)
    back.validate(full=True)
    assert back.schema == records_schema()
    assert back.to_pylist() == listed
    for view in views:
        assert parse_header(view).crc == batch_crc(view)


def test_no_batches_are_an_empty_table() -> None:
    table = table_from_batches([], decompressed_bytes_max=ROOMY)
    assert table.num_rows == 0
    assert table.schema == records_schema()
    assert batches_from_table(table, BatchOptions(), batch_bytes_max=300) == []


def test_header_keys_need_not_be_text() -> None:
    row = {
        "offset": 7,
        "timestamp_ms": 1,
        "key": None,
        "value": bytes(range(256)),
        "headers": [{"key": b"\xff\xfe", "value": None}, {"key": b"\xff\xfe", "value": b""}],
    }
    table = pa.Table.from_pylist([row], schema=records_schema())
    (batch,) = batches_from_table(table, BatchOptions(), batch_bytes_max=300)
    assert parse_header(memoryview(batch)).base_offset == 7
    back = table_from_batches([memoryview(batch)], decompressed_bytes_max=ROOMY)
    assert back.to_pylist() == [row]
