"""The byte tables of docs/formats-writes.md against the structs of the code."""

import struct

import pytest
from tests.docs.pages import DOCS, marked_tables
from tests.docs.test_formats import Table, code, subject

PAGE = DOCS / "formats-writes.md"


@pytest.mark.parametrize(("name", "table"), marked_tables(PAGE, "layout"))
def test_a_layout_is_the_struct_of_the_code(name: str, table: Table) -> None:
    packed = subject(name)
    assert isinstance(packed, struct.Struct)
    assert "".join(code(row[1]) for row in table) == packed.format[1:]
    assert packed.format[0] == "<"


def test_every_part_of_the_event_has_a_table() -> None:
    named = [name.partition(":")[2] for name, _ in marked_tables(PAGE, "layout")]
    assert named == ["_WRITE", "_LENGTH", "_CUTOFF"]
