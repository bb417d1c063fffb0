"""The byte tables of docs/formats.md against the structs and columns of the code."""

import importlib
import re
import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.docs.pages import DOCS, marked_tables

from lakelog.domain.events import Kind
from lakelog.meta.sqlite_file import SCHEMA

PAGE = DOCS / "formats.md"
SQLITE_PAGE = DOCS / "formats-sqlite.md"
CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i8": "b", "i16": "h", "i32": "i"}
CODES |= {"i64": "q"}

Table = list[list[str]]


def subject(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def code(written: str) -> str:
    fixed = re.fullmatch(r"bytes\[(\d+)\]", written)
    return f"{fixed[1]}s" if fixed else CODES[written]


@pytest.mark.parametrize(("name", "table"), marked_tables(PAGE, "layout"))
def test_a_layout_is_the_struct_of_the_code(name: str, table: Table) -> None:
    packed = subject(name)
    assert isinstance(packed, struct.Struct)
    assert "".join(code(row[1]) for row in table) == packed.format[1:]


@pytest.mark.parametrize(("name", "table"), marked_tables(PAGE, "columns"))
def test_columns_are_those_of_the_code(name: str, table: Table) -> None:
    written = [(row[0], "<" + code(row[1])) for row in table]
    columns = [(column, np.dtype(kind)) for column, kind in subject(name)]
    assert [(column, np.dtype(kind)) for column, kind in written] == columns


@pytest.mark.parametrize(("name", "table"), marked_tables(PAGE, "struct"))
def test_keys_of_a_map_are_the_fields_of_the_code(name: str, table: Table) -> None:
    fields = [field.encode_name for field in msgspec.structs.fields(subject(name))]
    assert [row[0] for row in table] == fields


def test_every_kind_of_event_is_described_with_its_number() -> None:
    text = PAGE.read_text()
    for kind in Kind:
        name = "".join(word.capitalize() for word in kind.name.split("_"))
        assert f"| {kind.value} | {name} |" in text


def test_the_schema_is_the_one_that_is_created() -> None:
    (written,) = re.findall(r"```sql\n(.*?)```", SQLITE_PAGE.read_text(), re.DOTALL)
    made = SCHEMA.replace("IF NOT EXISTS ", "").split("INSERT OR IGNORE")[0]
    assert written.split() == made.split()


def test_the_page_has_tables_of_every_sort() -> None:
    counts = {kind: len(marked_tables(PAGE, kind)) for kind in ("layout", "columns", "struct")}
    assert counts == {"layout": 10, "columns": 6, "struct": 2}
