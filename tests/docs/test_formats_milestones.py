"""The tables of docs/formats-milestones.md against the structs and limits of the code."""

import msgspec
import pytest
from tests.docs.pages import DOCS, marked_tables
from tests.docs.test_formats import Table, subject

from lakelog.domain import milestone, start
from lakelog.meta import keys

PAGE = DOCS / "formats-milestones.md"


@pytest.mark.parametrize(("name", "table"), marked_tables(PAGE, "struct"))
def test_keys_of_a_map_are_the_fields_of_the_code(name: str, table: Table) -> None:
    fields = [field.encode_name for field in msgspec.structs.fields(subject(name))]
    assert [row[0] for row in table] == fields


def test_keys_and_limits_are_those_of_the_code() -> None:
    text = " ".join(PAGE.read_text().split())
    assert len(marked_tables(PAGE, "struct")) == 3
    assert f"`{milestone.ROOT}/domain=D/WRITER.json`" in text
    assert f"`{keys.timeline(0).replace('0', 'D')}`" in text
    assert f"more than {start.UNNAMED_MAX} WAL objects" in text
    assert f"more than {start.UNNAMED_SPAN_MS // 60_000} minutes apart" in text
