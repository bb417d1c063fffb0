"""What `consume` prints, `produce --json` reads back without loss."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.cli.records import FIELDS, LineError, parse_line, render_line
from lakelog.records.build import Record

blobs = st.none() | st.binary(max_size=30) | st.text(max_size=20).map(str.encode)
names = st.binary(max_size=10) | st.sampled_from([b"h", b"trace"])
records = st.builds(
    Record,
    key=blobs,
    value=blobs,
    timestamp_ms=st.integers(-1, (1 << 63) - 1),
    headers=st.lists(st.tuples(names, blobs), max_size=4).map(tuple),
)


@given(records, st.integers(0, 9), st.integers(0, 1 << 60))
def test_a_record_survives_the_round_trip(record: Record, partition: int, offset: int) -> None:
    line = render_line(record, topic="t", partition=partition, offset=offset)
    assert "\n" not in line
    assert parse_line(line) == (record, partition)


def test_text_is_readable_and_bytes_are_base64() -> None:
    record = Record(b"k", b"\xff\0", 5, ((b"h", "é".encode()), (b"h", None)))
    assert json.loads(render_line(record, topic="t", partition=1, offset=2)) == {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": 5,
        "key": "k",
        "value": {"base64": "/wA="},
        "headers": [["h", "é"], ["h", None]],
    }


def test_a_line_needs_nothing_and_headers_may_be_an_object() -> None:
    assert parse_line("{}") == (Record(None, None, -1, ()), None)
    assert parse_line('{"headers": {"a": "1"}}')[0].headers == ((b"a", b"1"),)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{",
        '{"valeu": "x"}',
        '{"key": 5}',
        '{"key": {"base64": "!"}}',
        '{"key": {"hex": "00"}}',
        '{"key": "\\ud800"}',
        '{"timestamp": "now"}',
        '{"timestamp": true}',
        '{"timestamp": 9223372036854775808}',
        '{"headers": "x"}',
        '{"headers": [["a"]]}',
        '{"headers": [[null, "a"]]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_record_is_refused(line: str) -> None:
    with pytest.raises(LineError):
        parse_line(line)


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
binaries = st.binary(max_size=9).map(lambda data: {"base64": base64.b64encode(data).decode()})
fields = {
    "key": binaries | st.text(max_size=9),
    "value": binaries | values,
    "headers": st.lists(st.tuples(binaries | st.just("h"), binaries), max_size=2),
    "timestamp": st.integers(-2, 1 << 63),
    "partition": st.integers(-2, 1 << 63),
}
objects = st.fixed_dictionaries({}, optional=fields) | st.dictionaries(
    st.sampled_from(sorted(FIELDS)), values
)


@given(st.text(max_size=60) | objects.map(json.dumps))
def test_any_line_is_refused_or_a_record_that_can_be_written_again(line: str) -> None:
    try:
        record, partition = parse_line(line)
    except LineError:
        return
    partition = partition or 0
    written = render_line(record, topic="t", partition=partition, offset=0)
    assert parse_line(written) == (record, partition)
