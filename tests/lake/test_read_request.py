"""The columns of a read, and conditions that rule out what cannot hold."""

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.config.named_options import BadOption
from lakelog.lake.read.read_request import (
    EVERYTHING,
    TYPES,
    Condition,
    Filters,
    arrow_schema,
    checked_conditions,
    checked_schema,
    chosen_columns,
    default_columns,
    filters_of,
    spark_ddl,
)


def test_the_columns_are_those_of_sparks_kafka_source() -> None:
    assert spark_ddl(default_columns(include_headers=True)) == (
        "key binary, value binary, topic string, partition int, offset bigint,"
        " timestamp timestamp, timestampType int, headers array<struct<key:string,value:binary>>"
    )
    assert default_columns(include_headers=False) == default_columns(include_headers=True)[:-1]


def test_arrow_has_exactly_the_types_that_spark_expects() -> None:
    schema = arrow_schema(default_columns(include_headers=True))
    assert [str(field.type) for field in schema] == [
        "binary",
        "binary",
        "string",
        "int32",
        "int64",
        "timestamp[us, tz=UTC]",
        "int32",
        "list<element: struct<key: string, value: binary>>",
    ]
    assert all(field.nullable for field in schema)


@given(st.permutations(list(TYPES)), st.integers(1, len(TYPES)))
def test_any_columns_in_any_order_are_a_schema(names: list[str], count: int) -> None:
    fields = [(name, TYPES[name][-1].upper()) for name in names[:count]]
    assert checked_schema(fields) == tuple(names[:count])
    assert arrow_schema(names[:count]).names == names[:count]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([], "no column"),
        ([("offset", "int")], "offset has the type bigint, not int"),
        ([("value", "string")], "value has the type binary"),
        ([("timestamp", "timestamp_ntz")], "timestamp has the type timestamp"),
        ([("vlaue", "binary")], "did you mean value"),
        ([("timestamptype", "int")], "did you mean timestampType"),
        ([("zzz", "int")], "there are key"),
        ([("key", "binary"), ("key", "binary")], "twice"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(fields: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(BadOption, match=said) as caught:
        checked_schema(fields)
    assert caught.value.option == "schema"


def test_columns_by_name_are_checked_too() -> None:
    assert chosen_columns(["offset", "key"]) == ("offset", "key")
    with pytest.raises(BadOption, match="columns names 'kye'"):
        chosen_columns(["kye"])


RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda left, right: left in right,
    "not in": lambda left, right: left not in right,
}


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    column = draw(st.sampled_from(["partition", "offset", "topic"]))
    name = draw(st.sampled_from(sorted(RELATIONS)))
    one = st.sampled_from(["a", "b"]) if column == "topic" else st.integers(-1, 5)
    if column == "topic":
        name = draw(st.sampled_from(["=", "!=", "in", "not in"]))
    return column, name, draw(st.lists(one, max_size=3) if "in" in name else one)


@given(st.lists(conditions(), max_size=4))
def test_no_row_that_fulfils_all_conditions_is_ruled_out(given: list[Condition]) -> None:
    found = filters_of(given)
    for topic in ("a", "b"):
        for partition in range(4):
            for offset in range(4):
                row = {"topic": topic, "partition": partition, "offset": offset}
                fulfils = all(RELATIONS[name](row[column], value) for column, name, value in given)
                inside = found.offset_start <= offset < found.offset_end
                if fulfils:
                    assert found.holds(topic, partition)
                    assert inside


def test_what_can_be_ruled_out_is() -> None:
    found = filters_of(
        [("offset", ">", 5), ("offset", "<=", 9), ("partition", "in", [1, 2]), ("topic", "=", "a")]
    )
    assert (found.offset_start, found.offset_end) == (6, 10)
    assert [one for one in range(5) if found.holds("a", one)] == [1, 2]
    assert not found.holds("b", 1)
    assert filters_of([("value", "=", b"x"), ("offset", "!=", 1)]) == EVERYTHING


def test_only_a_lower_bound_of_the_time_rules_out() -> None:
    at = datetime(1970, 1, 1, 0, 0, 1, 500, tzinfo=UTC)
    assert filters_of([("timestamp", ">=", at)]) == Filters(timestamp_start_us=1_000_500)
    assert filters_of([("timestamp", "<", at)]) == EVERYTHING
    both = filters_of([("timestamp", ">", at), ("timestamp", "=", at + timedelta(seconds=1))])
    assert both.timestamp_start_us == 2_000_500


@pytest.mark.parametrize("bad", [("offset", ">"), ("ofset", ">", 1), ("offset", "~", 1), ()])
def test_what_is_no_condition_is_refused(bad: tuple[object, ...]) -> None:
    with pytest.raises(BadOption, match=r"operator|one of"):
        checked_conditions([bad])


def test_a_time_without_a_zone_is_refused() -> None:
    naive = datetime(2024, 1, 1)  # noqa: DTZ001 - what is refused
    with pytest.raises(BadOption, match="time zone"):
        checked_conditions([("timestamp", ">", naive)])
