"""The tables of docs/formats-snapshots.md against the structs and keys of the code."""

import pytest
from tests.docs.pages import DOCS, marked_tables
from tests.docs.test_formats import Table, subject

from lakelog.catalog.snapshot_page import _Row
from lakelog.meta import keys

PAGE = DOCS / "formats-snapshots.md"


@pytest.mark.parametrize(("name", "table"), marked_tables(PAGE, "struct"))
def test_the_keys_of_a_map_are_the_fields_of_the_code(name: str, table: Table) -> None:
    assert [row[0] for row in table] == list(subject(name).__struct_fields__)


def test_both_maps_have_a_table_and_the_row_as_many_fields_as_are_named() -> None:
    assert len(marked_tables(PAGE, "struct")) == 2
    rows = dict(marked_tables(PAGE, "struct"))["lakelog.catalog.snapshot_page:_Page"][-1][1]
    assert rows.count(",") + 1 == len(_Row.__struct_fields__) + 1, rows


def test_the_keys_are_those_of_the_code() -> None:
    text = PAGE.read_text()
    for key in (
        keys.snapshots("TOPIC-ID"),
        keys.snapshot_head("TOPIC-ID"),
        keys.snapshot_page("TOPIC-ID", 0).replace("0" * 10, "NUMBER"),
    ):
        assert f"`{key}`" in text
