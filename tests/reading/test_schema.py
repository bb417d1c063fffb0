"""The columns of a read: those of Spark's Kafka source, any of them, in any order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.reading.request import BadOption
from lakelog.reading.schema import (
    TYPES,
    arrow_schema,
    checked_schema,
    chosen_columns,
    default_columns,
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
