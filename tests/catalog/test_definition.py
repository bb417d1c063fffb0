"""What every table of a topic is, and where it lies."""

from dataclasses import replace

import pytest
from tests.catalog.kit import DEFINITION, LOCATIONS, NAME, TOPIC_ID

from lakelog.catalog.definition import owner_of, table_prefix, table_properties
from lakelog.catalog.port import TableDefinition, TableName
from lakelog.model.failures import Refused


def test_no_extra_property_changes_what_we_rely_on() -> None:
    wild = {"gc.enabled": "true", "lakelog.offsets": "x", "a": "b", "format-version": "3"}
    made = table_properties(replace(DEFINITION, properties=wild))
    assert (made["gc.enabled"], made["lakelog.offsets"], made["a"]) == ("false", "{}", "b")
    assert "format-version" not in made


@pytest.mark.parametrize(
    "name", [TableName("..", "x"), TableName("kafka", "a/b"), TableName("", "x")]
)
def test_a_name_that_is_no_place_for_objects_is_refused(name: TableName) -> None:
    with pytest.raises(Refused):
        table_prefix(TableDefinition(name, "x", "0" * 32, "c"))


def test_the_place_of_the_metadata_says_whose_the_table_is() -> None:
    place = LOCATIONS.location(table_prefix(DEFINITION))
    assert owner_of(NAME, f"{place}/metadata/00007-x.metadata.json", LOCATIONS) == TOPIC_ID


@pytest.mark.parametrize(
    "location",
    [
        f"memory:///tables/kafka/{NAME.table}/{TOPIC_ID}",
        f"memory:///tables/kafka/{NAME.table}",
        f"memory:///tables/kafka/other/{TOPIC_ID}/metadata/x",
        f"memory:///tables/other/{NAME.table}/{TOPIC_ID}/metadata/x",
        f"memory:///elsewhere/kafka/{NAME.table}/{TOPIC_ID}/metadata/x",
        f"file:///tables/kafka/{NAME.table}/{TOPIC_ID}/metadata/x",
        f"memory:///tables/kafka/{NAME.table}/../{TOPIC_ID}/metadata/x",
        "",
    ],
)
def test_metadata_elsewhere_is_no_topics(location: str) -> None:
    assert owner_of(NAME, location, LOCATIONS) is None
