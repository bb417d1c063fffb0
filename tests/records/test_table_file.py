"""Rows go into files and come out of them by row groups, and other readers read them too."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.records.table_cases import ROOMY, hostile_batches, rows_of, stored_batches

from lakelog.model.failures import Corrupt
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.table_batches import batches_from_rows
from lakelog.records.table_bytes import TAIL_BYTES, footer_bytes
from lakelog.records.table_file import TableFile, TableFileWriter
from lakelog.records.table_rows import rows_from_batches
from lakelog.records.table_schema import FIELD_IDS, TableFileFacts, TableFileOrigin, table_schema


def origin(*, start: int, end: int) -> TableFileOrigin:
    return TableFileOrigin(9, bytes(range(16)), 4, "task-1", start, end, 1000)


def written(
    batches: list[tuple[int, memoryview]], *, start: int, end: int, row_group_bytes: int = 1 << 20
) -> tuple[memoryview, TableFileFacts]:
    sink = io.BytesIO()
    where = origin(start=start, end=end)
    writer = TableFileWriter(sink, where, row_group_bytes=row_group_bytes)
    for batch in batches:
        writer.write(rows_from_batches([batch], partition=4, decompressed_bytes_max=ROOMY))
    facts = writer.close()
    return memoryview(sink.getvalue()), facts


def opened(data: memoryview) -> TableFile:
    return TableFile.open(data[-footer_bytes(data[-TAIL_BYTES:]) :], size_bytes=len(data))


def fetched(data: memoryview) -> list[tuple[int, memoryview]]:
    """The batches of a file, rebuilt row group by row group from their bytes alone."""
    file = opened(data)
    found = []
    for number, group in enumerate(file.row_groups):
        rows = file.read(number, data[group.byte_start : group.byte_end])
        made = batches_from_rows(rows, start=group.start, end=group.end, batch_bytes_max=300)
        found += [(int.from_bytes(one[:8], "big"), memoryview(one)) for one in made]
    return found


@settings(deadline=None, max_examples=examples(60))
@given(batches=stored_batches(), row_group_bytes=st.sampled_from([1, 100, 1 << 20]))
def test_records_come_back_from_a_file(
    batches: list[tuple[int, memoryview]], row_group_bytes: int
) -> None:
    expected = rows_of(batches)
    start = expected[0].offset if expected else 3
    end = expected[-1].offset + 5 if expected else 5
    data, facts = written(batches, start=start, end=end, row_group_bytes=row_group_bytes)
    assert rows_of(fetched(data)) == expected
    assert (facts.row_count, facts.size_bytes) == (len(expected), len(data))
    stamps = [row.timestamp_ms for row in expected] or [-1]
    assert (facts.min_timestamp_ms, facts.max_timestamp_ms) == (min(stamps), max(stamps))
    assert facts.row_groups == opened(data).row_groups
    assert opened(data).origin == origin(start=start, end=end)
    edges = [(group.start, group.end) for group in facts.row_groups]
    assert [low for low, _ in edges] == [start, *(high for _, high in edges[:-1])][: len(edges)]
    assert not edges or edges[-1][1] == end


def test_hostile_records_come_back_from_a_file() -> None:
    batches = hostile_batches()
    expected = rows_of(batches)
    end = expected[-1].offset + 1
    data, facts = written(batches, start=0, end=end, row_group_bytes=100_000)
    assert len(facts.row_groups) > 2
    assert rows_of(fetched(data)) == expected


def ordinary(count: int, *, value_bytes: int = 100) -> list[tuple[int, memoryview]]:
    records = [
        Record(b"k%d" % at, bytes(value_bytes), 1_700_000_000_000 + at, [(b"h", b"x")])
        for at in range(count)
    ]
    return [(0, memoryview(build_batch(records, BatchOptions())))]


def test_row_groups_are_cut_by_bytes() -> None:
    data, facts = written(ordinary(1000), start=0, end=1000, row_group_bytes=13_000)
    rows = [group.row_count for group in facts.row_groups]
    assert sum(rows) == 1000
    assert {count * 130 // 1000 for count in rows[:-1]} == {13}
    assert facts.row_groups[0].byte_start == 4
    assert all(
        one.byte_end == two.byte_start
        for one, two in zip(facts.row_groups, facts.row_groups[1:], strict=False)
    )
    assert facts.row_groups[-1].byte_end <= len(data)


def test_files_are_what_every_reader_of_tables_reads() -> None:
    """Rule 10: encodings, pages, ids, statistics, the index of pages, no Arrow schema."""
    data, facts = written(ordinary(100), start=0, end=100)
    footer = pq.ParquetFile(pa.BufferReader(data)).metadata
    assert footer.metadata.keys() == {
        f"lakelog.{key}".encode()
        for key in (
            "stream",
            "topic-id",
            "partition",
            "task",
            "start",
            "end",
            "batch-bytes-max",
            "row-group-crcs",
        )
    }
    group = footer.row_group(0)
    measured = set()
    for at in range(group.num_columns):
        column = group.column(at)
        assert column.compression == "ZSTD"
        assert {"PLAIN", "RLE", "RLE_DICTIONARY"} >= set(column.encodings)
        small = column.path_in_schema in {"partition", "attributes"}
        assert column.has_dictionary_page == small
        assert column.has_offset_index
        if column.statistics is not None:
            measured.add(column.path_in_schema)
    assert measured == {"partition", "offset", "timestamp"}
    assert [(one.path, one.field_id) for one in facts.columns] == [
        (path, FIELD_IDS[path])
        for path in (
            *("partition", "offset", "timestamp", "key", "value"),
            *("headers.element.key", "headers.element.value", "producer_id", "producer_epoch"),
            *("base_sequence", "attributes", "record_crc", "raw"),
        )
    ]
    offset = facts.columns[1]
    assert (offset.value_count, offset.null_count, offset.lower, offset.upper) == (100, 0, 0, 99)
    back = pq.read_table(pa.BufferReader(data))
    assert back.schema.remove_metadata().equals(table_schema(), check_metadata=True)
    assert back["offset"].to_pylist() == list(range(100))


def test_ids_are_the_tables_own() -> None:
    sink = io.BytesIO()
    ids = {path: number + 50 for path, number in FIELD_IDS.items()}
    writer = TableFileWriter(sink, origin(start=0, end=10), field_ids=ids)
    writer.write(rows_from_batches(ordinary(10), partition=4, decompressed_bytes_max=ROOMY))
    facts = writer.close()
    assert [one.field_id for one in facts.columns] == [ids[one.path] for one in facts.columns]
    back = pq.read_table(pa.BufferReader(sink.getvalue()))
    assert back.schema.remove_metadata().equals(table_schema(ids), check_metadata=True)


def test_rows_of_plain_columns_are_written_like_rows_of_views() -> None:
    views = rows_from_batches(ordinary(50), partition=4, decompressed_bytes_max=ROOMY)
    files = []
    for rows in (views, views.cast(table_schema())):
        sink = io.BytesIO()
        writer = TableFileWriter(sink, origin(start=0, end=50), row_group_bytes=2000)
        writer.write(rows)
        writer.close()
        files.append(sink.getvalue())
    assert files[0] == files[1]


_SOUND = written(ordinary(40, value_bytes=7), start=0, end=40)


@settings(deadline=None, max_examples=examples(200))
@given(at=st.integers(0, len(_SOUND[0]) - 1), bit=st.integers(0, 7))
def test_no_flipped_bit_is_served_or_ends_the_process(at: int, bit: int) -> None:
    data, facts = _SOUND
    content = bytearray(data)
    content[at] ^= 1 << bit
    broken = memoryview(bytes(content))
    (group,) = facts.row_groups
    footer = len(data) - footer_bytes(data[-TAIL_BYTES:])
    if group.byte_start <= at < group.byte_end or at >= footer:
        with pytest.raises(Corrupt):
            fetched(broken)
    else:
        assert rows_of(fetched(broken)) == rows_of(fetched(data))


@pytest.mark.parametrize("junk", [b"", b"PAR1", b"\xff\xff\xff\xffPAR1", bytes(100)])
def test_what_is_no_data_file_is_corrupt(junk: bytes) -> None:
    with pytest.raises(Corrupt):
        opened(memoryview(junk))
