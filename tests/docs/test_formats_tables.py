"""The tables of docs/formats-tables.md against the code."""

import re

import msgspec
import pytest
from tests.docs.pages import DOCS, marked_tables, rows
from tests.docs.test_formats import Table, subject

from lakelog.catalog import port
from lakelog.pipeline.saga.task_record import TaskState
from lakelog.pipeline.saga.values import TaskTarget
from lakelog.records import table_file
from lakelog.records.table_schema import FIELD_IDS

PAGE = DOCS / "formats-tables.md"


def behind(marker: str) -> Table:
    """The table behind a marker."""
    text = PAGE.read_text().partition(f"<!-- {marker} -->\n")[2]
    return rows(text.partition("\n\n")[0].splitlines())


@pytest.mark.parametrize(("name", "table"), marked_tables(PAGE, "struct"))
def test_the_keys_of_a_record_are_the_fields_of_the_code(name: str, table: Table) -> None:
    struct = subject(name)
    tag = struct.__struct_config__.tag_field
    fields = [field.encode_name for field in msgspec.structs.fields(struct)]
    assert [row[0] for row in table] == ([tag, *fields] if tag else fields)


def test_both_parts_of_a_record_have_a_table() -> None:
    assert len(marked_tables(PAGE, "struct")) == 2


def test_the_ids_of_columns_are_those_of_a_new_table() -> None:
    assert {row[0]: int(row[1]) for row in behind("ids")} == dict(FIELD_IDS)


def test_the_keys_of_a_footer_are_those_that_are_written() -> None:
    written = [f"lakelog.{key}" for key in table_file._KEYS] + [table_file._CRCS]
    assert [row[0] for row in behind("footer")] == written


def test_the_properties_of_a_table_are_those_of_the_code() -> None:
    named = {value for name, value in vars(port).items() if name.endswith("_PROPERTY")}
    assert {row[0] for row in behind("properties")} == named


@pytest.mark.parametrize(("field", "kind"), [("target", TaskTarget), ("state", TaskState)])
def test_the_values_of_a_choice_are_all_there(
    field: str, kind: type[TaskTarget] | type[TaskState]
) -> None:
    (said,) = [row[1] for row in marked_tables(PAGE, "struct")[0][1] if row[0] == field]
    assert re.findall(r"`(\w+)`", said) == [one.value for one in kind]
