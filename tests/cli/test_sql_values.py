"""Arrow's values as they are printed."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from lakelog.cli.sql_values import json_of, text_of, values_of

ZONED = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.array([b"a", b"\xff", None]), ["a", {"base64": "/w=="}, None]),
        (
            pa.array([0, 1, None], ZONED),
            ["1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.000001Z"],
        ),
        (pa.array([1500], pa.timestamp("ms")), ["1970-01-01T00:00:01.500"]),
        (pa.array([-1], pa.timestamp("s")), ["1969-12-31T23:59:59"]),
        (pa.array([((1 << 63) // 1000) * 1000], ZONED), ["294247-01-10T04:00:54.775Z"]),
        (pa.array([[b"x"], [], None]), [["x"], [], None]),
        (pa.array([[[1], None]]), [[[1], None]]),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), [[1, 2], None]),
        (pa.array([{"a": b"x"}, None]), [{"a": "x"}, None]),
        (
            pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
            [[["k", 1]], None],
        ),
        (pa.array([Decimal(17999997000000000000000)]), [17999997000000000000000]),
        (pa.array([Decimal("1.5")]), [Decimal("1.5")]),
        (pa.array([date(2024, 1, 2)]), ["2024-01-02"]),
        (pa.array([time(10, 0)]), ["10:00:00"]),
        (pa.array([True, None]), [True, None]),
        (pa.array([datetime(2024, 1, 1, tzinfo=UTC)], ZONED), ["2024-01-01T00:00:00.000Z"]),
    ],
)
def test_a_column_becomes_values(column: pa.Array, values: list[object]) -> None:
    assert values_of(column)[: len(values)] == values


def test_a_slice_of_a_column_gives_its_own_rows() -> None:
    column = pa.array([[1], [2, 3], None, [4]])
    assert values_of(column.slice(1, 2)) == [[2, 3], None]
    rows = pa.array([{"a": 1}, {"a": 2}, None])
    assert values_of(rows.slice(1, 2)) == [{"a": 2}, None]
    pairs = pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int32()))
    assert values_of(pairs.slice(1)) == [[["b", 2]]]


def test_json_is_exact_and_always_json() -> None:
    row = {"a": Decimal("1.5"), "b": float("nan"), "c": 1 << 70, "d": "ä"}
    assert json_of(row) == '{"a":1.5,"b":null,"c":1180591620717411303424,"d":"ä"}'
    assert json.loads(json_of(values_of(pa.array([{"a": [b"x"]}])))) == [{"a": ["x"]}]
    assert [text_of(one) for one in (None, "x", 1, [1], True)] == ["", "x", "1", "[1]", "true"]
