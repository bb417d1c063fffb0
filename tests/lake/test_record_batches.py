"""Rows become batches that a broker would accept, and come back as they were."""

from collections.abc import Mapping

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lake.blocks import Row, decoded, form, read_back, rows_of, target
from tests.sides import both, side

from lakelog.index.messages import WriteTarget
from lakelog.lake.write.record_batches import RowFormat, StreamBatch, built_batches
from lakelog.lake.write.write_options import BadRow
from lakelog.records.acceptance import AcceptedBatch, BatchRules, TimestampType, inspect
from lakelog.records.build import murmur2
from lakelog.records.codecs import Codec
from lakelog.records.header import LOG_APPEND_TIME_BIT, parse_header, restamp

NOW_MS = 1_700_000_000_123
ALL = ("key", "value", "headers")


def built(
    targets: Mapping[str, WriteTarget], codec: Codec | None = None, **columns: list[object]
) -> list[StreamBatch]:
    rows, places = rows_of(**columns)
    shape = RowFormat(places, form(places).topic, codec)
    return list(built_batches(rows, shape, targets, now_ms=NOW_MS))


def accepted(one: StreamBatch, of: WriteTarget) -> AcceptedBatch:
    """What a broker makes of the batch, as a producer without the LogAppendTime bit sends it."""
    kind = TimestampType.LOG_APPEND_TIME if of.log_append_time else TimestampType.CREATE_TIME
    data = one.batch.data
    if of.log_append_time:
        header = parse_header(data)
        assert header.attributes & LOG_APPEND_TIME_BIT
        sent = header.attributes & ~LOG_APPEND_TIME_BIT
        data = restamp(data, attributes=sent, max_timestamp_ms=NOW_MS)
    rules = BatchRules(
        now_ms=NOW_MS,
        produce_version=12,
        message_bytes_max=of.max_message_bytes,
        timestamp_type=kind,
        compacted=of.is_compacted,
    )
    found = inspect(data, rules)
    assert isinstance(found, AcceptedBatch), found
    return found


blobs = st.none() | st.binary(max_size=30)
headers = st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3)
records = st.lists(
    st.tuples(blobs, blobs, st.none() | headers, st.none() | st.integers(0, 3)), max_size=30
)


@settings(deadline=None)
@given(records, st.sampled_from(Codec), st.booleans(), st.sampled_from([200, 1_048_588]))
def test_every_row_is_a_record_of_its_partition_and_a_broker_would_take_its_batch(
    some: list[
        tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int | None]
    ],
    codec: Codec,
    log_append_time: bool,
    bytes_max: int,
) -> None:
    of = target(log_append_time=log_append_time, max_message_bytes=bytes_max)
    found = built(
        {"t": of},
        codec,
        key=[one[0] for one in some],
        value=[one[1] for one in some],
        headers=[
            None if one[2] is None else [{"key": key, "value": value} for key, value in one[2]]
            for one in some
        ],
        partition=[one[3] for one in some],
    )
    wanted: dict[tuple[str, int], list[Row]] = {}
    for key, value, named, partition in some:
        decides = value if key is None else key
        hashed = 0 if decides is None else (murmur2(decides) & 0x7FFFFFFF) % 4
        row = (key, value, [(name.encode(), found) for name, found in named or ()])
        wanted.setdefault(("t", hashed if partition is None else partition), []).append(row)
    assert read_back(found, {"t": of}) == wanted
    for one in found:
        assert accepted(one, of) == one.batch
        assert len(one.batch.data) <= bytes_max
        assert set(decoded(one).timestamps_ms.tolist()) == {NOW_MS}


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=9))))
def test_rows_go_to_the_topics_that_they_name(some: list[tuple[str, bytes]]) -> None:
    targets = {name: target(name, 3) for name in "abc"}
    found = built(
        targets,
        topic=[topic for topic, _ in some],
        value=[value for _, value in some],
        headers=[[{"key": topic, "value": None}] for topic, _ in some],
    )
    wanted: dict[tuple[str, int], list[Row]] = {}
    for topic, value in some:
        place = topic, (murmur2(value) & 0x7FFFFFFF) % 3
        wanted.setdefault(place, []).append((None, value, [(topic.encode(), None)]))
    assert read_back(found, targets) == wanted


@both
def test_many_rows_are_cut_into_batches_that_are_read_back(compiled: bool) -> None:
    values: list[object] = [b"%d" % number * (number % 40) for number in range(3_000)]
    of = target(partitions=1, max_message_bytes=9_000, compression="uncompressed")
    with side(compiled):
        found = built({"t": of}, value=values)
    assert len(found) > 20
    assert all(len(one.batch.data) <= 9_000 for one in found)
    ((_, rows),) = read_back(found, {"t": of}).items()
    assert [value for _, value, _ in rows] == values


@pytest.mark.parametrize(
    ("compression", "asked", "used"),
    [
        ("producer", None, Codec.LZ4),
        ("producer", Codec.GZIP, Codec.GZIP),
        ("producer", Codec.NONE, Codec.NONE),
        ("zstd", Codec.GZIP, Codec.ZSTD),
        ("uncompressed", Codec.GZIP, Codec.NONE),
    ],
)
def test_the_topic_decides_how_batches_are_compressed_then_the_writer(
    compression: str, asked: Codec | None, used: Codec
) -> None:
    (one,) = built({"t": target(compression=compression)}, asked, value=[b"x" * 1000])
    assert decoded(one).header.codec == used


def test_a_batch_that_compression_makes_too_large_is_left_as_it_is() -> None:
    of = target(partitions=1, max_message_bytes=61 + 12)
    (one,) = built({"t": of}, Codec.GZIP, value=[b"abcd"])
    assert decoded(one).header.codec == Codec.NONE


def test_a_row_that_shrinks_enough_is_taken() -> None:
    of = target(partitions=1, max_message_bytes=2_000)
    (one,) = built({"t": of}, value=[b"x" * 100_000])
    assert len(one.batch.data) <= 2_000


def test_a_row_that_is_too_large_is_refused_with_its_size_and_the_limit() -> None:
    of = target("orders", 1, max_message_bytes=500)
    with pytest.raises(BadRow, match="batch of 1070 bytes, the topic orders allows 500"):
        built(
            {"orders": of},
            Codec.NONE,
            topic=["orders"] * 2,
            value=[b"small", bytes(range(200)) * 5],
        )


def test_a_row_that_unpacks_to_too_much_is_refused_as_a_broker_would() -> None:
    of = target(partitions=1)
    with pytest.raises(BadRow, match="allows 67108864"):
        built({"t": of}, value=[bytes(64 << 20)])


def test_a_compacted_topic_takes_no_row_without_a_key() -> None:
    of = target("latest", is_compacted=True)
    with pytest.raises(BadRow, match="the topic latest is compacted"):
        built({"latest": of}, topic=["latest"] * 2, key=[b"k", None], value=[b"v", b"v"])
    assert built({"latest": of}, topic=["latest"], key=[b""], value=[None])


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"topic": ["t", None], "value": [b"", b""]}, "null as its topic"),
        ({"topic": ["t", "gone"], "value": [b"", b""]}, "the topic gone does not exist"),
        ({"value": [b""], "partition": [-3]}, "partition has -3"),
        ({"value": [b"", b""], "partition": [None, 4]}, "partition 4 of the topic t"),
        ({"value": [b""], "headers": [[{"key": None, "value": b""}]]}, "header without a key"),
        ({"value": [b""], "headers": [[None]]}, "header without a key"),
    ],
)
def test_a_row_that_is_no_record_is_refused(columns: dict[str, list[object]], reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        built({"t": target()}, None, **columns)


def test_no_row_is_no_batch() -> None:
    assert built({"t": target()}, value=[]) == []


def test_a_slice_of_a_batch_is_written_and_no_more() -> None:
    rows, places = rows_of(
        key=[b"a", b"b", b"c"],
        value=[b"1", b"2", b"3"],
        headers=[[{"key": "x", "value": b"y"}], None, [{"key": "z", "value": None}]],
    )
    of = target(partitions=1)
    found = list(built_batches(rows.slice(1, 2), form(places), {"t": of}, now_ms=NOW_MS))
    ((_, back),) = read_back(found, {"t": of}).items()
    assert back == [(b"b", b"2", []), (b"c", b"3", [(b"z", None)])]


def test_text_is_written_as_utf8() -> None:
    _, places = rows_of(key=[None], value=[None])
    for kind in (pa.string(), pa.large_string()):
        rows = pa.RecordBatch.from_pydict(
            {"key": pa.array(["ä", None], kind), "value": pa.array(["", "€"], kind)}
        )
        of = target(partitions=1)
        found = list(built_batches(rows, form(places), {"t": of}, now_ms=NOW_MS))
        ((_, back),) = read_back(found, {"t": of}).items()
        assert back == [("ä".encode(), b"", []), (None, "€".encode(), [])]
