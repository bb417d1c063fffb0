"""The reader's side without a broker: events in, rows out."""

import numpy as np
import pytest

from lakelog.client.decoder import MemoryAccount
from lakelog.client.events import BufferFull, PartitionAdded, PositionReset, ReadFailed, RowsArrived
from lakelog.client.fetch_scheduler import Demand
from lakelog.client.merge_buffer import MergedRows, SortedRun
from lakelog.client.reader import OrderedReader, ReaderOptions
from lakelog.client.watermark import PartitionState, Rule
from lakelog.kafka_client.admin import LogBounds, TopicPartition
from lakelog.kafka_client.failures import CorruptBatch, Unreachable
from lakelog.records.fetched import FetchedRows


def run_of(index: int, times: list[int], first: int = 0) -> SortedRun:
    """Rows of these times, without keys and values."""
    count = len(times)
    rows = FetchedRows(
        offsets=np.arange(first, first + count),
        timestamps_ms=np.array(times, np.int64),
        key_views=np.zeros((count, 4), np.int32),
        value_views=np.zeros((count, 4), np.int32),
        key_nulls=None,
        value_nulls=None,
        data=memoryview(b""),
        header_starts=None,
        header_counts=None,
    )
    return SortedRun(index, rows)


def reader(
    ends: list[int],
    *,
    cutoff_ms: int | None = None,
    out_of_order_ms: int = 0,
    idle_ms_max: int | None = None,
) -> OrderedReader:
    options = ReaderOptions(
        rule=Rule(cutoff_ms, out_of_order_ms), is_ordered=True, idle_ms_max=idle_ms_max
    )
    made = OrderedReader(options, MemoryAccount())
    made.take_in(joined(index, end) for index, end in enumerate(ends))
    return made


def joined(index: int, end: int, replaced: int | None = None) -> PartitionAdded:
    partition = PartitionState(index, TopicPartition("t", index), bytes(16), 0)
    return PartitionAdded(partition, LogBounds(0, end), 0, replaced)


def arrived(index: int, times: list[int], first: int = 0, version: int = 0) -> RowsArrived:
    return RowsArrived(index, version, run_of(index, times, first), first + len(times))


def times_of(taken: MergedRows | None) -> list[int]:
    return [] if taken is None else taken.merged.timestamps_ms.tolist()


def test_messages_at_the_low_water_mark_go_and_later_ones_wait() -> None:
    made = reader([100, 100])
    made.take_in([arrived(0, [100, 200, 300, 400]), arrived(1, [150, 250])])
    # The tail of a run is the least time of its latest rows, so that the limit is (100, 0).
    assert times_of(made.release(10)) == [100]
    made.take_in([arrived(0, [410], 4), arrived(1, [260], 2)])
    assert times_of(made.release(10)) == [150, 200, 250, 260]
    assert made.limit().timestamp_ms == 260


def test_a_partition_without_a_record_holds_everything_back() -> None:
    made = reader([100, 100])
    made.take_in([arrived(0, [1, 2, 3])])
    assert made.release(10) is None


def test_a_partition_is_live_when_its_rows_up_to_the_end_were_given_out() -> None:
    made = reader([2, 100])
    made.take_in([arrived(0, [10, 20]), arrived(1, [5])])
    assert times_of(made.release(10)) == [5]
    first, second = made.current()
    assert (made.is_partition_live(first), made.is_partition_live(second)) == (False, False)
    made.take_in([arrived(1, [30] * 99, 1)])
    assert times_of(made.release(2)) == [10, 20]
    assert made.is_partition_live(first)
    assert not made.is_live()
    assert len(times_of(made.release(1000))) == 99
    assert made.is_live()


def test_the_position_passes_the_end_without_rows_and_the_partition_is_live() -> None:
    made = reader([100])
    made.take_in([RowsArrived(0, 0, run_of(0, []), 100)])
    assert made.is_live()


def test_a_partition_begins_where_it_was_read_from_not_where_it_is_now() -> None:
    made = reader([])
    partition = PartitionState(0, TopicPartition("t", 0), bytes(16), 0)
    event = PartitionAdded(partition, LogBounds(0, 50), 0)
    partition.position = 50  # the loop is faster than whoever hears of it
    made.take_in([event])
    assert not made.is_live()
    assert made.snapshot().partitions[0].next_offset == 0


def test_rows_of_before_a_seek_are_dropped_when_they_come() -> None:
    made = reader([100])
    made.take_in([arrived(0, [1, 2, 3])])
    made.seek(0, 50, 1)
    assert made.held_rows == 0
    made.take_in([arrived(0, [4, 5], 3)])
    assert made.held_rows == 0
    made.take_in([arrived(0, [9] * 50, 50, version=1)])
    assert made.held_rows == 50


def test_memory_that_was_given_back_is_told() -> None:
    memory = MemoryAccount()
    made = OrderedReader(
        ReaderOptions(rule=Rule(None, 0), is_ordered=True, idle_ms_max=None), memory
    )
    made.take_in([joined(0, 3), arrived(0, [1, 2, 3])])
    memory.decoded_rows = 3
    memory.decoded_bytes = made.held_bytes
    assert (memory.held_rows(), memory.held_bytes()) == (3, made.held_bytes)
    made.release(10)
    assert (memory.held_rows(), memory.held_bytes()) == (0, 0)


def test_a_squeeze_goes_by_the_last_rows_and_what_comes_late_is_counted() -> None:
    made = reader([100, 100], out_of_order_ms=1000)
    made.take_in([arrived(0, [500] * 5), arrived(1, [600] * 5)])
    assert made.release(10) is None
    assert made._memory.demand is Demand.ROWS
    made.take_in([BufferFull()])
    assert times_of(made.release(10)) == [500] * 5
    assert (made.squeezes, made.late_rows) == (1, 0)
    made.take_in([arrived(0, [400, *[1700] * 94], 5), arrived(1, [1800] * 5, 5)])
    assert times_of(made.release(10)) == [400, 600, 600, 600, 600, 600]
    assert made.late_rows == 1


def test_after_a_squeeze_that_gives_nothing_the_reader_must_progress() -> None:
    made = reader([100, 100])
    made.take_in([arrived(0, [5]), BufferFull()])
    assert made.release(10) is None
    assert made._memory.demand is Demand.MUST_PROGRESS


def test_a_partition_that_is_asked_in_vain_is_idle_until_it_answers() -> None:
    made = reader([100, 100], idle_ms_max=500)
    made.take_in([arrived(0, [5]), arrived(0, [6], 1)])
    made.states[1].partition.waiting_since_s = 10.0
    made.find_idle(10.4)
    assert made.release(10) is None
    made.find_idle(10.6)
    assert times_of(made.release(10)) == [5, 6]
    assert made.wait_changes == {1: False}
    made.states[1].partition.waiting_since_s = None
    made.take_in([arrived(1, [3])])
    made.find_idle(10.7)
    assert made.wait_changes == {1: True}
    assert times_of(made.release(10)) == [3]
    assert made.late_rows == 1


def test_a_cutoff_makes_a_partition_live() -> None:
    made = reader([100, 100], cutoff_ms=50, out_of_order_ms=10)
    made.take_in([arrived(0, [60, 61]), arrived(1, [59])])
    assert not made.is_live()
    made.take_in([arrived(1, [60], 1)])
    assert times_of(made.release(10)) == [59, 60, 60, 61]
    assert made.is_live()


def test_a_failure_of_a_partition_is_told_until_it_is_sought() -> None:
    made = reader([100])
    failure = CorruptBatch("t", 0, 7)
    made.take_in([ReadFailed(failure, 0, 0)])
    assert [made.first_failure() for _ in range(2)] == [failure, failure]
    made.seek(0, 8, 1)
    assert made.first_failure() is None
    made.take_in([ReadFailed(failure, 0, 0)])
    assert made.first_failure() is None


def test_a_failure_of_the_world_is_told_once() -> None:
    made = reader([100])
    failure = Unreachable("nobody")
    made.take_in([ReadFailed(failure)])
    assert [made.first_failure() for _ in range(2)] == [failure, None]


def test_a_reset_moves_the_position_and_keeps_what_was_read() -> None:
    made = reader([100])
    made.take_in([arrived(0, [1, 2]), PositionReset(0, 1, 40)])
    assert made.states[0].progress.position == 40
    assert made.held_rows == 2


def test_a_partition_that_was_replaced_still_gives_out_its_rows() -> None:
    made = reader([100])
    made.take_in([arrived(0, [1, 2])])
    partition = PartitionState(9, TopicPartition("t", 0), bytes(16), 0)
    made.take_in([PartitionAdded(partition, LogBounds(0, 0), 0, 0)])
    assert [state.partition for state in made.current()] == [partition]
    assert times_of(made.release(10)) == [1, 2]
    assert made.is_live()


@pytest.mark.parametrize("count", [1, 5])
def test_a_snapshot_tells_what_went_out_of_order(count: int) -> None:
    made = reader([100])
    made.take_in([arrived(0, [50, 10, 40, 20, 30]), RowsArrived(0, 0, run_of(0, []), 100)])
    made.release(count)
    (each,) = made.snapshot().partitions
    if count == 1:
        assert (each.next_offset, each.released) == (0, ((1, 2), (5, 100)))
    else:
        assert (each.next_offset, each.released) == (100, ())
