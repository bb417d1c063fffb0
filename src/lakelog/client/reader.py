"""The reader's side of a consumer: what was read, what may go, and what is live. No I/O, no thread.

Rules:

- One thread at a time uses it. It learns of the world by events, and of time by an argument.
- Rows go by the rule of `watermark`. When nothing may go and memory is full, the rule is squeezed:
  the bound goes first, and rows that are late because of it are counted.
- A partition is live for the user when it is by the rule, and what was read of it until then was
  given out; once live is live for good.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from lakelog.client.decoder import MemoryAccount
from lakelog.client.events import (
    BufferFull,
    Event,
    PartitionAdded,
    PositionReset,
    ReadFailed,
    RowsArrived,
)
from lakelog.client.fetch_scheduler import Demand
from lakelog.client.merge_buffer import MergeBuffer, MergedRows
from lakelog.client.options import PartitionSnapshot, Snapshot, resume_position
from lakelog.client.watermark import (
    Limit,
    Progress,
    ReleaseState,
    Rule,
    Watermark,
    is_live,
    squeezed,
)
from lakelog.kafka_client.failures import ClientFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """What a reader is told."""

    rule: Rule
    is_ordered: bool
    idle_ms_max: int | None


class OrderedReader:
    """Holds what was read, and gives it out in its order."""

    def __init__(self, options: ReaderOptions, memory: MemoryAccount) -> None:
        self._options = options
        self._memory = memory
        self._buffer = MergeBuffer(ordered=options.is_ordered)
        self._watermark = Watermark()
        self._not_live = 0
        self._failed: dict[int, ClientFailure] = {}
        self._may_squeeze = False
        self._bytes_in = 0
        self._rows_in = 0
        self.states: dict[int, ReleaseState] = {}
        self.names: dict[int, tuple[str, int]] = {}
        self.wait_changes: dict[int, bool] = {}
        """Partitions that are waited for from now on, or no more: for the fetch scheduler."""
        self.failures: list[ClientFailure] = []
        """Told once each."""
        self.rows_received = 0
        self.rows_released = 0
        self.squeezes = 0

    @property
    def held_rows(self) -> int:
        """How many rows were read and not given out."""
        return self._buffer.row_count

    @property
    def held_bytes(self) -> int:
        """The memory of these rows."""
        return self._buffer.byte_count

    @property
    def late_rows(self) -> int:
        """How many rows were given out after a later one while priming."""
        return self._buffer.late_count

    # In.

    def take_in(self, events: Iterable[Event]) -> None:
        """Learn what happened."""
        for event in events:
            match event:
                case RowsArrived():
                    self._arrive(event)
                case PositionReset():
                    self._move(event)
                case PartitionAdded():
                    self.join(event)
                case ReadFailed():
                    self._fail(event)
                case BufferFull():
                    self._may_squeeze = True
                case _:
                    assert_never(event)

    def join(self, event: PartitionAdded) -> None:
        """Read a partition from now on."""
        partition, span = event.partition, event.span
        progress = Progress(partition.index, span.start, span.end, event.position, None)
        state = ReleaseState(partition, progress)
        self.states[partition.index] = state
        self._not_live += 1
        self.names[partition.index] = (partition.place.topic, partition.place.partition)
        if event.replaced is not None:
            old = self.states[event.replaced]
            old.is_retired = True
            self._failed.pop(event.replaced, None)
            self._advance(old, old.progress.position, was_live=True)
        self._advance(state, event.position)

    def _arrive(self, event: RowsArrived) -> None:
        state = self.states[event.index]
        run = event.run
        self._bytes_in += run.nbytes
        self._rows_in += len(run)
        if event.version < state.version:
            return
        self.rows_received += len(run)
        if run.tail_ms is not None:
            state.last_ms = int(run.rows.timestamps_ms[-1])
        self._buffer.add(run)
        self._advance(state, event.next_offset, tail_ms=run.tail_ms)

    def _move(self, event: PositionReset) -> None:
        state = self.states[event.index]
        if event.version >= state.version:
            self._advance(state, event.offset)

    def _fail(self, event: ReadFailed) -> None:
        if event.index is None:
            self.failures.append(event.failure)
        elif event.version >= self.states[event.index].version:
            self._failed[event.index] = event.failure

    def seek(self, index: int, offset: int, version: int) -> None:
        """Forget what was read of a partition: it is read from another offset."""
        state = self.states[index]
        self._buffer.drop(index)
        self._publish()
        state.version = version
        self._failed.pop(index, None)
        state.last_ms = None
        state.progress = replace(state.progress, tail_ms=None)
        self._advance(state, offset)

    def _advance(
        self,
        state: ReleaseState,
        position: int,
        *,
        tail_ms: int | None = None,
        was_live: bool = False,
    ) -> None:
        old = state.progress
        progress = Progress(
            old.index,
            old.start,
            old.end,
            position,
            old.tail_ms if tail_ms is None else tail_ms,
            was_live=old.was_live or was_live,
        )
        if state.live_position is None and is_live(progress, self._options.rule):
            state.live_position = position
            progress = replace(progress, was_live=True)
            self._not_live -= 1
            self.wait_changes[progress.index] = False
        elif old.is_idle:
            self.wait_changes[progress.index] = True
        self._set_progress(state, progress)

    def _set_progress(self, state: ReleaseState, progress: Progress) -> None:
        state.progress = progress
        if progress.was_live or progress.is_idle:
            self._watermark.forget(progress.index)
        else:
            self._watermark.wait_for(progress.index, progress.tail_ms)

    @property
    def is_primed(self) -> bool:
        """Whether all partitions are live by the rule."""
        return self._not_live == 0

    def find_idle(self, now_s: float) -> None:
        """Wait no more for partitions that are asked in vain for too long, and for others again."""
        idle_ms_max = self._options.idle_ms_max
        if idle_ms_max is None or self.is_primed:
            return
        for index, state in self.states.items():
            progress = state.progress
            if progress.was_live:
                continue
            since_s = state.partition.waiting_since_s
            is_idle = since_s is not None and (now_s - since_s) * 1000 >= idle_ms_max
            if is_idle != progress.is_idle:
                self._set_progress(state, replace(progress, is_idle=is_idle))
                self.wait_changes[index] = not is_idle

    # Out.

    def release(self, rows_max: int) -> MergedRows | None:
        """The next rows that may go; None if there is none."""
        taken = self._buffer.take(self.limit(), rows_max)
        if taken is not None:
            self._memory.demand = Demand.NONE
        elif self._may_squeeze:
            tight = squeezed(self._options.rule)
            taken = self._buffer.take(self._watermark.limit(tight.out_of_order_ms), rows_max)
            self.squeezes += taken is not None
            self._memory.demand = Demand.MUST_PROGRESS if taken is None else Demand.NONE
        elif self._memory.demand is Demand.NONE:
            self._memory.demand = Demand.ROWS
        self._may_squeeze = False
        if taken is not None:
            self.rows_released += len(taken)
        self._publish()
        return taken

    def _publish(self) -> None:
        """Tell the loop how much is free again of all that ever came."""
        self._memory.freed_bytes = self._bytes_in - self.held_bytes
        self._memory.freed_rows = self._rows_in - self.held_rows

    def limit(self) -> Limit:
        """The greatest key that may go now."""
        return self._watermark.limit(self._options.rule.out_of_order_ms)

    # What is asked.

    def first_failure(self) -> ClientFailure | None:
        """What the user has to hear: of a partition again and again, until it is sought."""
        if self.failures:
            return self.failures.pop(0)
        return next(iter(self._failed.values()), None)

    def current(self) -> list[ReleaseState]:
        """The partitions that are read, by topic and number."""
        found = [state for state in self.states.values() if not state.is_retired]
        return sorted(found, key=lambda each: each.place)

    def is_live(self) -> bool:
        """Whether all partitions are live, and what was read until then was given out."""
        return all(self.is_partition_live(state) for state in self.states.values())

    def is_partition_live(self, state: ReleaseState) -> bool:
        """Whether a partition is live, and what was read until then was given out."""
        if not state.is_live and state.live_position is not None:
            least = self._buffer.least_unreleased(state.progress.index)
            state.is_live = least is None or least >= state.live_position
        return state.is_live

    def next_offset(self, state: ReleaseState) -> int:
        """The least offset that was not given out."""
        least = self._buffer.least_unreleased(state.progress.index)
        return state.progress.position if least is None else least

    def released_offset(self, state: ReleaseState) -> int | None:
        """The greatest offset that was given out; None before the first."""
        return self._buffer.greatest_released(state.progress.index)

    def snapshot(self) -> Snapshot:
        """Where the user is in all partitions."""
        return Snapshot(partitions=tuple(self._snapshot(state) for state in self.current()))

    def _snapshot(self, state: ReleaseState) -> PartitionSnapshot:
        progress, partition = state.progress, state.partition
        position = progress.position
        next_offset, released = resume_position(
            self.next_offset(state),
            self._buffer.released_ranges(progress.index, position),
            [(max(start, position), end) for start, end in partition.released if end > position],
        )
        return PartitionSnapshot(
            topic=partition.place.topic,
            partition=partition.place.partition,
            topic_id=partition.topic_id.hex(),
            start=progress.start,
            end=progress.end,
            next_offset=next_offset,
            released=released,
        )
