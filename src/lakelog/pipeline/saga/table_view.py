"""A topic's table as the saga sees it, and what it says about a task's file. Pure.

The table of a topic has the topic's name, verbatim, and says by a property which topic it is of: a
topic made again under its name is another one, and its table too. A view is a value taken at one
moment. Which view is taken before which is part of the saga's correctness, not of its speed: see
`lakelog.pipeline.saga.steps`.

A table holds, as a table property and in the summary of each snapshot, one offset per partition:
the end of what it has. Rows are appended in order, so the vector alone says whether a range is
there: no search for a commit's name, which is gone when its snapshot expired or was never written
by somebody else's commit. A file [start, end) planned when the vector said `expected`

- may be appended if it still says so, by one compare-and-swap on that very snapshot;
- is there already if it says `end` or more;
- fits nowhere otherwise, which is reported and never forced (rule 24).

`expected` is `start`, or less where the log has nothing for the table between the two: what was
trimmed before it was compacted. The vector's text is the catalog's
(`lakelog.catalog.offsets`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

from lakelog.catalog.port import (
    TOPIC_ID_PROPERTY,
    TableDefinition,
    TableName,
)
from lakelog.catalog.port import TableView as CatalogView
from lakelog.model.ids import TopicId
from lakelog.pipeline.saga.task_record import TaskRecord
from lakelog.pipeline.saga.values import DataFile


@dataclass(frozen=True, slots=True)
class PartitionTableView:
    """A topic's table at one snapshot, seen by one partition.

    `token` names the snapshot for the compare-and-swap of a commit: whatever changes the table
    changes it. `offset` is the partition's place in the offset vector, None before its first file.
    `topic_id` is the table's own property: a topic made again has another table under the name.
    `files` are the keys of the live files with rows in the range of a replacing task, in order of
    offsets, looked up after `token` was read; None where nobody asked.
    """

    topic_id: TopicId
    token: str
    offset: int | None
    files: tuple[str, ...] | None = None


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
) -> PartitionTableView | None:
    """The table as one partition's task sees it, with the files that it replaces, if it does."""
    topic = None if table is None else topic_of(table)
    if table is None or topic is None:
        return None
    return PartitionTableView(topic, table.token, table.vector.get(partition), files)


class CommitStatus(Enum):
    """What the vector says about a planned file."""

    APPEND = "append"
    PRESENT = "present"
    MISFIT = "misfit"


def judge(*, found: int | None, expected: int | None, end: int) -> CommitStatus:
    """Whether a file that ends at `end` may be appended where the vector says `found`."""
    assert expected is None or expected < end, (expected, end)
    if found is not None and found >= end:
        return CommitStatus.PRESENT
    return CommitStatus.APPEND if found == expected else CommitStatus.MISFIT


def judge_files(found: Sequence[str], *, inputs: Sequence[str], file: DataFile) -> CommitStatus:
    """Whether a file may take the place of `inputs` where the table has the files `found`.

    The vector does not move when files are replaced, so the files decide. A file without rows is
    not named by a table, which has it once the inputs are gone, whoever took them.
    """
    wanted = (file.key,) if file.row_count else ()
    if tuple(found) == wanted:
        return CommitStatus.PRESENT
    return CommitStatus.APPEND if tuple(found) == tuple(inputs) else CommitStatus.MISFIT


def judge_task(record: TaskRecord, table: PartitionTableView) -> CommitStatus:
    """What the table says about the file that a task has written."""
    if not record.is_replacing:
        return judge(found=table.offset, expected=record.expected, end=record.end)
    assert record.file is not None, record
    assert table.files is not None, table
    return judge_files(table.files, inputs=record.inputs, file=record.file)


def flaws(files: Iterable[DataFile], *, offset: int | None) -> list[str]:
    """What is wrong with one partition's live files at a vector of `offset`.

    A gap is reported too: whether the log has something for it, the caller knows.
    """
    ordered = sorted(files, key=lambda one: (one.start, one.end))
    found = []
    for before, after in pairwise(ordered):
        if after.start < before.end:
            found.append(f"{before.key} and {after.key} overlap at {after.start}")
        elif after.start > before.end:
            found.append(f"no file holds [{before.end}, {after.start})")
    reach = ordered[-1].end if ordered else None
    if reach != offset:
        found.append(f"the files reach to {reach}, the vector says {offset}")
    return found
