"""Which columns of a data frame are written."""

import pytest

from lakelog.config.named_options import BadOption
from lakelog.lake.write.write_options import HEADERS, RowColumns, checked_columns


def refused(columns: list[tuple[str, str]], *, topic: str | None = "t") -> BadOption:
    with pytest.raises(BadOption) as caught:
        checked_columns(columns, topic=topic)
    assert caught.value.option in str(caught.value)
    return caught.value


def test_a_value_is_enough_when_the_option_names_the_topic() -> None:
    assert checked_columns([("value", "string")], topic="t") == RowColumns(value=0)


def test_all_columns_are_found_wherever_they_stand() -> None:
    found = checked_columns(
        [
            ("partition", "int"),
            ("topic", "string"),
            ("headers", HEADERS),
            ("value", "binary"),
            ("key", "string"),
        ],
        topic=None,
    )
    assert found == RowColumns(value=3, key=4, headers=2, topic=1, partition=0)


def test_the_option_wins_over_a_column_of_topics_whatever_its_type() -> None:
    assert checked_columns([("topic", "int"), ("value", "binary")], topic="t") == RowColumns(
        value=1
    )


def test_what_was_read_from_a_topic_can_be_written_to_one() -> None:
    read = [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("day", "date"),
    ]
    assert checked_columns(read, topic=None) == RowColumns(1, 0, None, 2, 3)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("key", "int"),
        ("value", "struct<a:int>"),
        ("headers", "map<string,string>"),
        ("headers", "array<struct<key:string,value:string>>"),
        ("topic", "binary"),
        ("partition", "bigint"),
    ],
)
def test_a_column_of_another_type_is_refused_with_the_types_it_may_have(
    name: str, kind: str
) -> None:
    columns = [(name, kind), ("value", "string"), ("topic", "string")]
    error = refused(list(dict(reversed(columns)).items()), topic=None)
    assert error.option == name
    assert kind in str(error)
    assert "must be" in str(error)


def test_a_value_and_a_topic_must_be_there() -> None:
    assert refused([("key", "string")]).option == "value"
    assert "set the option topic" in str(refused([("value", "string")], topic=None))


@pytest.mark.parametrize("name", ["header", "Key", "partitions", "KEY"])
def test_a_column_that_is_nearly_one_of_a_records_is_refused(name: str) -> None:
    error = refused([("value", "string"), (name, "string")])
    assert error.option == name
    assert "did you mean" in str(error)


def test_a_column_is_not_taken_for_another_that_is_there() -> None:
    columns = [("value", "string"), ("values", "string"), ("topics", "string")]
    assert checked_columns(columns, topic="t") == RowColumns(value=0)


def test_of_two_columns_with_one_name_the_first_is_written() -> None:
    assert checked_columns([("value", "string"), ("value", "int")], topic="t") == RowColumns(
        value=0
    )
