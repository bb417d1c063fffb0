"""Batches of messages: their columns, where their memory lies, and what headers become."""

import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.row_cases import Row, at, fetched
from tests.profiles import examples
from tests.sides import side

from lakelog.client.arrow_rows import MessageRows, message_schema, partition_state_schema
from lakelog.client.merge_buffer import MergeBuffer, MergedRows, SortedRun
from lakelog.client.watermark import ALL
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.fetched import FetchedRows, decode_fetched
from lakelog.records.fetched_batches import walk_batches

NAMES = {0: ("clicks", 0), 1: ("clicks", 7), 5: ("views", 3)}


@pytest.fixture(autouse=True, params=["compiled", "numpy"])
def _kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    with side(compiled=request.param == "compiled"):
        yield


def taken(*runs: tuple[int, FetchedRows], ordered: bool = True) -> MergedRows:
    held = MergeBuffer(ordered=ordered)
    for index, rows in runs:
        held.add(SortedRun(index, rows, ordered=ordered))
    found = held.take(ALL, 1_000)
    assert found is not None
    return found


def with_headers(*records: Record) -> FetchedRows:
    """The records as a broker would send them."""
    sent = memoryview(build_batch(records, BatchOptions()))
    return decode_fetched(sent, walk_batches(sent), from_offset=0)


def test_the_first_six_columns_are_those_of_kafkars() -> None:
    assert message_schema().names[:6] == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
    ]
    assert [str(field.type) for field in message_schema()] == [
        "binary",
        "binary",
        "string",
        "int32",
        "int64",
        "timestamp[ms, tz=UTC]",
        "list<item: struct<key: string not null, value: binary>>",
    ]
    assert [field.nullable for field in message_schema()] == [True, True, *([False] * 5)]


def test_the_state_of_partitions_has_the_columns_of_kafkars_and_two_more() -> None:
    assert partition_state_schema().names == [
        "topic",
        "partition",
        "replay_start_offset",
        "replay_end_offset",
        "consumed_offset",
        "released_offset",
        "last_consumed_timestamp",
        "is_live",
        "is_paused",
        "high_watermark",
        "lag",
    ]
    may_be_null = [field.name for field in partition_state_schema() if field.nullable]
    assert may_be_null == ["last_consumed_timestamp", "high_watermark", "lag"]


def test_rows_of_several_topics_become_one_batch_in_their_order() -> None:
    long = b"a value of more than twelve bytes"
    batch = MessageRows(NAMES).build(
        taken(
            (5, fetched([Row(8, 20, b"k", long), Row(9, 40, None, None)])),
            (1, fetched([Row(3, 30, b"another key that is long", b""), Row(4, 10)])),
        )
    )
    batch.validate(full=True)
    assert batch.schema == message_schema()
    rows = batch.drop_columns(["timestamp", "headers"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (None, b"value", "clicks", 7, 4),
        (b"k", long, "views", 3, 8),
        (b"another key that is long", b"", "clicks", 7, 3),
        (None, None, "views", 3, 9),
    ]
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [10, 20, 30, 40]
    assert batch["headers"].to_pylist() == [[], [], [], []]


def test_unordered_rows_come_as_they_arrived() -> None:
    batch = MessageRows(NAMES).build(taken((1, at(9, 8)), (0, at(5)), ordered=False))
    assert batch["partition"].to_pylist() == [7, 7, 0]
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [9, 8, 5]


def test_a_batch_has_memory_of_its_own_unless_views_are_asked_for() -> None:
    rows = fetched([Row(0, 5, None, b"a value of more than twelve bytes")])
    own = MessageRows(NAMES).build(taken((0, rows)))
    sharing = MessageRows(NAMES, views=True).build(taken((0, rows)))
    sharing.validate(full=True)
    assert sharing.schema == message_schema(views=True)
    assert sharing["value"].to_pylist() == own["value"].to_pylist()
    address = pa.py_buffer(rows.data).address
    assert address in [buffer.address for buffer in sharing["value"].buffers() if buffer]
    assert address not in [buffer.address for buffer in own["value"].buffers() if buffer]


def test_an_empty_batch_has_all_columns() -> None:
    for views in (False, True):
        for headers in (False, True):
            empty = MessageRows(NAMES, views=views, headers=headers).empty()
            assert empty.num_rows == 0
            assert empty.schema == message_schema(views=views, headers=headers)


def test_columns_that_are_alike_grow_with_the_batches() -> None:
    builder = MessageRows(NAMES)
    small = builder.build(taken((0, at(5))))
    held = MergeBuffer(ordered=True)
    held.add(SortedRun(1, at(*range(20_000))))
    found = held.take(ALL, 20_000)
    assert found is not None
    large = builder.build(found)
    large.validate(full=True)
    assert set(large["topic"].to_pylist()) == {"clicks"}
    assert large["headers"].flatten().to_pylist() == []
    assert small["topic"].to_pylist() == ["clicks"]


def test_a_partition_that_is_named_later_is_known() -> None:
    names = dict(NAMES)
    builder = MessageRows(names)
    names[9] = ("new", 1)
    assert builder.build(taken((9, at(5))))["topic"].to_pylist() == ["new"]


def test_headers_follow_their_rows() -> None:
    first = with_headers(
        Record(b"a", b"0", 30, [(b"one", b"1"), (b"none", None)]), Record(b"a", b"1", 10)
    )
    second = with_headers(Record(b"b", b"2", 20, [(b"one", b""), (b"one", b"twice")]))
    batch = MessageRows(NAMES).build(taken((0, first), (5, second), (1, at(25))))
    batch.validate(full=True)
    assert batch.schema == message_schema()
    assert batch["headers"].to_pylist() == [
        [],
        [{"key": "one", "value": b""}, {"key": "one", "value": b"twice"}],
        [],
        [{"key": "one", "value": b"1"}, {"key": "none", "value": None}],
    ]


def test_headers_are_left_out_where_they_are_not_wanted() -> None:
    rows = with_headers(Record(b"a", b"0", 30, [(b"one", b"1")]))
    batch = MessageRows(NAMES, headers=False).build(taken((0, rows)))
    assert batch.schema == message_schema(headers=False)


def test_building_a_batch_does_not_bring_in_pandas() -> None:
    # `pa.array` and `pa.scalar` import it where it is installed: a second at the first poll.
    program = """
import sys
from tests.client.test_arrow_rows import NAMES, at, taken
from lakelog.client.arrow_rows import MessageRows
MessageRows(NAMES).build(taken((0, at(5)), (5, at(6))))
MessageRows(NAMES).empty()
sys.exit("pandas" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


CONTENT = st.none() | st.binary(max_size=30)
HEADERS = st.lists(st.tuples(st.text(max_size=4).map(str.encode), CONTENT), max_size=2)
RECORDS = st.builds(Record, CONTENT, CONTENT, st.integers(-1, 9), HEADERS)


@settings(deadline=None, max_examples=examples(80))
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 5]), st.lists(RECORDS, min_size=1, max_size=6)),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
    st.integers(1, 30),
)
def test_every_record_comes_out_as_it_was_sent(
    sent: list[tuple[int, list[Record]]], views: bool, rows_max: int
) -> None:
    held = MergeBuffer(ordered=True)
    expected = []
    for place, (index, records) in enumerate(sent):
        base = place * 10
        data = memoryview(build_batch(records, BatchOptions(base_offset=base)))
        held.add(SortedRun(index, decode_fetched(data, walk_batches(data), from_offset=0)))
        for number, record in enumerate(records):
            headers = [{"key": key.decode(), "value": value} for key, value in record.headers]
            key = (record.timestamp_ms, index, base + number)
            expected.append((key, record.key, record.value, headers))
    expected.sort(key=lambda row: row[0])
    builder = MessageRows(NAMES, views=views)
    batches = []
    while (found := held.take(ALL, rows_max)) is not None:
        batches.append(builder.build(found))
        batches[-1].validate(full=True)
    table = pa.Table.from_batches(batches)
    assert table["key"].to_pylist() == [key for _, key, _, _ in expected]
    assert table["value"].to_pylist() == [value for _, _, value, _ in expected]
    assert table["headers"].to_pylist() == [headers for _, _, _, headers in expected]
    assert table["offset"].to_pylist() == [offset for (_, _, offset), *_ in expected]
    names = list(zip(table["topic"].to_pylist(), table["partition"].to_pylist(), strict=True))
    assert names == [NAMES[index] for (_, index, _), *_ in expected]
