"""What the saga decided, as the catalog is asked for it, and the table as the saga sees it."""

from dataclasses import replace

import pytest
from msgspec import structs
from tests.pipeline.saga.task_values import CREATED, FACTS, TOPIC, file_of

from lakelog.catalog.definition import AdvanceStatus, judge
from lakelog.catalog.port import TableName
from lakelog.catalog.port import TableView as CatalogView
from lakelog.pipeline.saga.executor import advance_of, files_of, replacement_of
from lakelog.pipeline.saga.steps import CommitTable, ReplaceFiles
from lakelog.pipeline.saga.table_view import (
    PartitionTableView,
    definition_of,
    partition_view,
    topic_of,
)
from lakelog.pipeline.saga.values import TaskTarget
from lakelog.records.table_schema import FIELD_IDS, ColumnFacts

TIMES = ColumnFacts("timestamp", 3, 40, 6, 0, 1000, 9000)
FULL = replace(FACTS, columns=(*FACTS.columns, TIMES))
FILE = structs.replace(file_of(CREATED), facts=FULL)


def table(properties: dict[str, str]) -> CatalogView:
    name = TableName("lakelog", "t")
    return CatalogView(name, "u", "u:1", "l", "m", 1, {3: 4}, properties, (), FIELD_IDS)


def test_the_file_is_told_by_what_was_measured() -> None:
    (facts,) = files_of(FILE, 3)
    assert (facts.offset_first, facts.offset_end, facts.row_count) == (4, 10, 6)
    assert (facts.timestamp_min_us, facts.timestamp_max_us) == (1000, 9000)
    assert facts.column_sizes == (("offset", 40), ("timestamp", 40))
    assert facts.row_group_starts == (4,)
    empty = structs.replace(FILE, facts=replace(FULL, row_count=0, columns=(), row_groups=()))
    assert files_of(empty, 3) == ()


@pytest.mark.parametrize(
    ("expected", "vector"), [(4, {3: 4}), (2, {3: 2}), (0, {3: 0}), (None, {})]
)
def test_the_catalog_judges_an_advance_as_the_saga_did(
    expected: int | None, vector: dict[int, int]
) -> None:
    record = structs.replace(CREATED, expected=expected)
    advance = advance_of(CommitTable(record, FILE, "token", before=expected, after=10))
    assert judge(vector, advance) is AdvanceStatus.FRESH
    assert judge({3: 10}, advance) is AdvanceStatus.PRESENT
    assert advance.end == 10


def test_a_replacement_says_whether_rows_vanish() -> None:
    record = structs.replace(CREATED, target=TaskTarget.REWRITE, inputs=("a", "b"))
    step = ReplaceFiles(record, FILE, "token", ("a", "b"))
    assert replacement_of(step).drops_rows is False
    assert replacement_of(step).removed == ("a", "b")
    clean = replace(step, record=structs.replace(record, target=TaskTarget.CLEAN))
    assert replacement_of(clean).drops_rows is True
    empty = structs.replace(FILE, facts=replace(FULL, row_count=0))
    gone = replacement_of(replace(clean, file=empty))
    assert (gone.added, gone.drops_rows) == ((), True)


def test_a_table_is_that_of_its_topic() -> None:
    definition = definition_of("t", TOPIC, cluster_id="c", namespace="lakelog")
    assert definition.topic_id == TOPIC.hex()
    ours = table({"lakelog.topic_id": TOPIC.hex()})
    assert topic_of(ours) == TOPIC
    assert partition_view(ours, 3) == PartitionTableView(TOPIC, "u:1", 4)
    assert partition_view(ours, 5, ("a",)) == PartitionTableView(TOPIC, "u:1", None, ("a",))
    for strange in ({}, {"lakelog.topic_id": "zz" * 16}, {"lakelog.topic_id": "ab"}):
        assert topic_of(table(strange)) is None
        assert partition_view(table(strange), 3) is None
    assert partition_view(None, 3) is None
