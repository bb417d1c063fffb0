"""How much is kept as it is when a batch cannot be rows: it grows where bad batches are many. Pure.

A worker stops at the first batch that it cannot read, so each one costs a failed task and two more
for its entry: a segment, and the rows beside it. A thousand of them would cost thousands. So a bad
batch that follows the last one closely takes twice as much of the log along, up to the end of the
task that met it: the tasks that fail are few, however many batches are bad. What is taken along is
in the table as it would be otherwise, for its rows are read from the segment, and just what is bad
is left out (`lakelog.pipeline.planning.backfill`).
"""

from collections.abc import Sequence
from typing import Final

NEAR: Final = 1000
"""Bad batches are close when less than so many times the last range lies between them."""

GROWTH: Final = 2


def widened(
    quarantine: Sequence[tuple[int, int]], *, start: int, end: int, limit: int
) -> tuple[int, int]:
    """The offsets to keep as they are, from a bad batch [start, end) on and not beyond `limit`."""
    assert start < end <= limit, (start, end, limit)
    before = [one for one in quarantine if one[1] <= start]
    if not before:
        return start, end
    last_start, last_end = max(before, key=lambda one: one[1])
    size = last_end - last_start
    if start - last_end >= NEAR * size:
        return start, end
    return start, min(limit, max(end, start + GROWTH * size))
