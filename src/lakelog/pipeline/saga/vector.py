"""What the offset vector of a table says about a planned file, and whether files tile it. Pure.

A table holds, as a table property and in the summary of each snapshot, one offset per partition:
the end of what it has. Rows are appended in order, so the vector alone says whether a range is
there: no search for a commit's name, which is gone when its snapshot expired or was never written
by somebody else's commit. A file [start, end) planned when the vector said `expected`

- may be appended if it still says so, by one compare-and-swap on that very snapshot;
- is there already if it says `end` or more;
- fits nowhere otherwise, which is reported and never forced (rule 24).

`expected` is `start`, or less where the log has nothing for the table between the two: what was
trimmed before it was compacted. The vector's text is the catalog's
(`lakelog.catalog.offset_vector`).
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import pairwise

from lakelog.pipeline.saga.task_record import TaskRecord
from lakelog.pipeline.saga.values import DataFile, TableView


class Fit(Enum):
    """What the vector says about a planned file."""

    APPEND = "append"
    PRESENT = "present"
    MISFIT = "misfit"


def judge(*, found: int | None, expected: int | None, end: int) -> Fit:
    """Whether a file that ends at `end` may be appended where the vector says `found`."""
    assert expected is None or expected < end, (expected, end)
    if found is not None and found >= end:
        return Fit.PRESENT
    return Fit.APPEND if found == expected else Fit.MISFIT


def judge_files(found: Sequence[str], *, inputs: Sequence[str], file: DataFile) -> Fit:
    """Whether a file may take the place of `inputs` where the table has the files `found`.

    The vector does not move when files are replaced, so the files decide. A file without rows is
    not named by a table, which has it once the inputs are gone, whoever took them.
    """
    wanted = (file.name.key,) if file.row_count else ()
    if tuple(found) == wanted:
        return Fit.PRESENT
    return Fit.APPEND if tuple(found) == tuple(inputs) else Fit.MISFIT


def judge_task(record: TaskRecord, table: TableView) -> Fit:
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
            found.append(f"{before.name.key} and {after.name.key} overlap at {after.start}")
        elif after.start > before.end:
            found.append(f"no file holds [{before.end}, {after.start})")
    reach = ordered[-1].end if ordered else None
    if reach != offset:
        found.append(f"the files reach to {reach}, the vector says {offset}")
    return found
