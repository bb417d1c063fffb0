"""A topic's table as the saga sees it, and the saga's files as a catalog wants them.

The table of a topic has the topic's name, verbatim, and says by a property which topic it is of: a
topic made again under its name is another one, and its table too.
"""

from typing import Final

from lakelog.catalog.port import (
    TOPIC_ID_PROPERTY,
    Advance,
    DataFileFacts,
    Replacement,
    TableDefinition,
    TableName,
)
from lakelog.catalog.port import TableView as CatalogView
from lakelog.model.ids import TopicId
from lakelog.pipeline.planning.plan import Target
from lakelog.pipeline.saga.steps import CommitTable, ReplaceFiles
from lakelog.pipeline.saga.values import DataFile, TableView
from lakelog.records.table_facts import ColumnFacts

_ID_DIGITS: Final = 32


def table_name(topic: str, *, namespace: str) -> TableName:
    """The name of a topic's table."""
    return TableName(namespace, topic)


def definition_of(
    topic: str, topic_id: TopicId, *, cluster_id: str, namespace: str
) -> TableDefinition:
    """What is fixed when the table of a topic is made."""
    name = table_name(topic, namespace=namespace)
    return TableDefinition(name, topic, topic_id.hex(), cluster_id)


def topic_of(table: CatalogView) -> TopicId | None:
    """Which topic the table is of; None when that is nobody's we know."""
    text = table.properties.get(TOPIC_ID_PROPERTY, "")
    try:
        return TopicId(bytes.fromhex(text)) if len(text) == _ID_DIGITS else None
    except ValueError:
        return None


def partition_view(
    table: CatalogView | None, partition: int, files: tuple[str, ...] | None = None
) -> TableView | None:
    """The table as one partition's task sees it, with the files that it replaces, if it does."""
    topic = None if table is None else topic_of(table)
    if table is None or topic is None:
        return None
    return TableView(topic, table.token, table.vector.get(partition), files)


def advance_of(step: CommitTable) -> Advance:
    """What the catalog is asked for, so that it judges the file as the saga did."""
    record = step.record
    started = record.expected is not None
    return Advance(
        partition=record.partition,
        start=record.expected if record.expected is not None else record.start,
        end=record.end,
        files=files_of(step.file, record.partition),
        at_log_start=not started,
    )


def replacement_of(step: ReplaceFiles) -> Replacement:
    """What the catalog is asked for; the file's rows may be fewer than those of the inputs."""
    added = files_of(step.file, step.record.partition)
    return Replacement(
        partition=step.record.partition,
        removed=step.inputs,
        added=added,
        drops_rows=step.record.target is Target.CLEAN or not added,
    )


def files_of(file: DataFile, partition: int) -> tuple[DataFileFacts, ...]:
    """The file as a table names it: not at all when it holds no row."""
    facts = file.facts
    assert facts is not None, file
    if not facts.row_count:
        return ()
    offset_first, offset_upper = _bounds(facts.columns, "offset")
    timestamp_min_us, timestamp_max_us = _bounds(facts.columns, "timestamp")
    found = DataFileFacts(
        key=file.name.key,
        partition=partition,
        offset_first=offset_first,
        offset_end=offset_upper + 1,
        row_count=facts.row_count,
        size_bytes=facts.size_bytes,
        timestamp_min_us=timestamp_min_us,
        timestamp_max_us=timestamp_max_us,
        column_sizes=tuple((one.path, one.size_bytes) for one in facts.columns),
        row_group_starts=tuple(group.byte_start for group in facts.row_groups),
    )
    return (found,)


def _bounds(columns: tuple[ColumnFacts, ...], path: str) -> tuple[int, int]:
    (column,) = (one for one in columns if one.path == path)
    assert column.lower is not None, column
    assert column.upper is not None, column
    return column.lower, column.upper
