"""Which streams may have segments that their table lacks: remembered between rounds.

Whether one has is known only with its table and all of its entries, and most streams have no
segment at all. So a stream is looked at when its last task made a segment or was given up, after
rows of its segments were planned, and when its entries end with segments; once nothing was found,
not again until another task has run, for only a task makes segments.
"""

from collections.abc import Set

from lakelog.pipeline.saga.record_store import StoredRecord
from lakelog.pipeline.saga.task_record import TaskState
from lakelog.pipeline.saga.values import TaskTarget


class Lacking:
    """The streams to be looked at."""

    def __init__(self) -> None:
        self._suspects: set[int] = set()
        self._settled: dict[int, int] = {}
        """The number of the task after which nothing was found."""

    def keep(self, streams: Set[int]) -> None:
        """Forget streams that are gone."""
        self._suspects &= streams
        for stream in self._settled.keys() - streams:
            del self._settled[stream]

    def suspect(self, stream: int, last: StoredRecord | None) -> None:
        """The stream may lack something, unless a look since its last task says otherwise."""
        if self._settled.get(stream) != _number(last):
            self._suspects.add(stream)

    def settle(self, stream: int, last: StoredRecord | None) -> None:
        """A look after this task has found nothing."""
        self._suspects.discard(stream)
        self._settled[stream] = _number(last)

    def holds(self, stream: int, last: StoredRecord | None) -> bool:
        """Whether the stream is to be looked at."""
        if stream in self._suspects or last is None:
            return stream in self._suspects
        record = last.record
        if record.target is not TaskTarget.LOG and record.state is not TaskState.CLOSED:
            return False
        return self._settled.get(stream) != record.task


def _number(last: StoredRecord | None) -> int:
    return 0 if last is None else last.record.task
