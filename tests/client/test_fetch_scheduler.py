"""Which partitions are asked next, for how much, and which wait."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from lakelog.client.fetch_plan import PlannedFetch
from lakelog.client.fetch_scheduler import (
    CHUNK_BYTES_MIN,
    MIB,
    REQUESTS_MAX,
    TAIL_PAUSE_S,
    BufferUsage,
    Demand,
    FetchLimits,
    FetchScheduler,
)

EMPTY = BufferUsage(held_bytes=0, held_rows=0, demand=Demand.NONE)


def usage(held_bytes: int = 0, held_rows: int = 0, demand: Demand = Demand.NONE) -> BufferUsage:
    return BufferUsage(held_bytes=held_bytes, held_rows=held_rows, demand=demand)


def scheduler(
    partitions: int = 4,
    *,
    is_ordered: bool = True,
    bytes_max: int = 256 * MIB,
    rows_max: int = 1 << 40,
) -> FetchScheduler:
    made = FetchScheduler(
        FetchLimits(
            bytes_max=bytes_max,
            rows_max=rows_max,
            request_bytes=4 * MIB,
            partition_bytes=MIB,
            is_ordered=is_ordered,
        )
    )
    for index in range(partitions):
        made.add(index, is_waited_for=True)
        made.place(index, 1)
    return made


def indexes(fetch: PlannedFetch | None) -> list[int]:
    assert fetch is not None
    return [planned.index for planned in fetch.partitions]


def answer(
    made: FetchScheduler,
    fetch: PlannedFetch,
    times: dict[int, int | None],
    *,
    is_behind: bool = True,
    size: int = 0,
) -> None:
    for planned in fetch.partitions:
        time = times.get(planned.index)
        if time is None:
            made.answered_empty(planned.index, is_behind=is_behind)
        else:
            made.answered(
                planned.index,
                frontier_ms=time,
                wire_bytes=1000,
                batch_bytes=1,
                is_behind=is_behind,
            )
    made.closed(1, fetch, size)


def test_a_partition_takes_part_in_one_request_at_a_time() -> None:
    made = scheduler(4)
    assert indexes(made.plan(1, EMPTY, 0)) == [0, 1, 2, 3]
    assert made.plan(1, EMPTY, 0) is None


def test_a_request_ends_when_it_is_large_enough_and_the_next_goes_on() -> None:
    made = scheduler(10)
    assert indexes(made.plan(1, EMPTY, 0)) == [0, 1, 2, 3]
    assert indexes(made.plan(1, EMPTY, 0)) == [4, 5, 6, 7]
    assert indexes(made.plan(1, EMPTY, 0)) == [8, 9]


def test_no_more_requests_wait_at_a_leader_than_are_useful() -> None:
    made = scheduler(100)
    asks = [made.plan(1, EMPTY, 0) for _ in range(REQUESTS_MAX)]
    assert all(asks)
    assert made.plan(1, EMPTY, 0) is None
    made.closed(1, asks[0], 0)  # type: ignore[arg-type]  # all are there
    assert made.plan(1, EMPTY, 0) is not None


def test_least_time_is_asked_first_and_before_all_who_has_shown_none() -> None:
    made = scheduler(4)
    fetch = made.plan(1, EMPTY, 0)
    assert fetch is not None
    answer(made, fetch, {0: 300, 1: 100, 2: None, 3: 200})
    assert indexes(made.plan(1, EMPTY, 0)) == [2, 1, 3, 0]


def test_without_order_everybody_takes_turns() -> None:
    made = scheduler(6, is_ordered=False)
    fetch = made.plan(1, EMPTY, 0)
    assert indexes(fetch) == [0, 1, 2, 3]
    assert fetch is not None
    answer(made, fetch, {0: 1, 1: 1, 2: 1, 3: 1})
    assert indexes(made.plan(1, EMPTY, 0)) == [4, 5, 0, 1]


def test_a_chunk_is_a_fair_part_of_the_memory() -> None:
    assert scheduler(4).chunk_bytes(0) == MIB
    assert scheduler(2000).chunk_bytes(0) == CHUNK_BYTES_MIN
    # 2 bytes of memory for a byte on the wire are assumed at first.
    assert scheduler(64, bytes_max=96 * MIB).chunk_bytes(0) == 96 * MIB // 2 // 2 // 64
    assert scheduler(1000, is_ordered=False).chunk_bytes(0) == MIB


def test_chunks_hold_about_the_same_time() -> None:
    made = scheduler(3, bytes_max=8 * MIB)
    for time in (1000, 2000):
        fetch = made.plan(1, EMPTY, 0)
        assert fetch is not None
        for planned, size in zip(fetch.partitions, (100_000, 200_000, 700_000), strict=True):
            made.answered(
                planned.index, frontier_ms=time, wire_bytes=size, batch_bytes=1, is_behind=True
            )
        made.closed(1, fetch, 0)
    assert [round(made.chunk_bytes(index) / MIB, 1) for index in range(3)] == [0.2, 0.4, 1.0]


def test_what_answers_became_in_memory_decides_how_much_is_asked() -> None:
    made = scheduler(1, bytes_max=32 * MIB)
    for _ in range(50):
        made.decoded(MIB, memory_bytes=20 * MIB, rows=1000)
    assert made.chunk_bytes(0) == pytest.approx(32 * MIB / 20 / 2, rel=0.05)


@pytest.mark.parametrize(("is_certain", "sizes"), [(True, [1, 2, 4]), (False, [1, 1, 2])])
def test_a_batch_that_did_not_fit_is_asked_for_with_more_bytes(
    sizes: list[int], *, is_certain: bool
) -> None:
    made = scheduler(1)
    found = []
    for _ in range(3):
        fetch = made.plan(1, EMPTY, 0)
        assert fetch is not None
        found.append(fetch.partitions[0].bytes_max // MIB)
        made.too_small(0, fetch.partitions[0].bytes_max, is_certain=is_certain)
        answer(made, fetch, {0: None})
    assert found == sizes


def test_partitions_wait_when_memory_is_full_and_go_on_when_there_is_room() -> None:
    made = scheduler(4, bytes_max=24 * MIB)
    full = usage(24 * MIB)
    assert made.plan(1, full, 0) is None
    assert made.paused() == frozenset({0, 1, 2, 3})
    assert made.plan(1, EMPTY, 0) is not None
    assert made.paused() == frozenset()
    assert (made.pauses, made.resumes) == (4, 4)


def reached(made: FetchScheduler, times: dict[int, int], step_ms: int = 10) -> None:
    """Let partitions have read up to these times, in two answers."""
    for back_ms in (step_ms, 0):
        fetch = made.plan(1, EMPTY, 0)
        assert fetch is not None
        answer(made, fetch, {index: time - back_ms for index, time in times.items()})


def test_a_full_memory_makes_a_reader_without_rows_give_out_what_it_can() -> None:
    made = scheduler(3, bytes_max=24 * MIB)
    reached(made, {0: 300, 1: 100, 2: 200})
    assert made.plan(1, usage(30 * MIB), 0) is None
    assert not made.is_blocked
    assert made.plan(1, usage(30 * MIB, demand=Demand.ROWS), 0) is None
    assert made.is_blocked


def test_the_least_partition_is_granted_one_fetch_when_the_reader_must_progress() -> None:
    made = scheduler(3, bytes_max=24 * MIB)
    reached(made, {0: 300, 1: 100, 2: 200})
    must_progress = usage(30 * MIB, demand=Demand.MUST_PROGRESS)
    fetch = made.plan(1, must_progress, 0)
    assert indexes(fetch) == [1]
    assert fetch is not None
    assert fetch.is_on_demand
    assert made.plan(1, must_progress, 0) is None
    assert made.paused() == frozenset({0, 2})
    assert made.pauses - made.resumes == 2


def test_a_third_of_the_memory_is_for_those_that_a_reader_without_rows_waits_for() -> None:
    made = scheduler(4, bytes_max=240 * MIB)
    reached(made, {0: 300, 1: 100, 2: 200, 3: 105})
    held = 170 * MIB
    assert made.plan(1, usage(held), 0) is None
    fetch = made.plan(1, usage(held, demand=Demand.ROWS), 0)
    assert indexes(fetch) == [1, 3], "the others are further than one answer ahead"
    assert fetch is not None
    assert fetch.is_on_demand


def test_a_reader_without_rows_waits_for_what_is_under_way() -> None:
    made = scheduler(2, bytes_max=24 * MIB)
    made.place(1, 7)
    assert made.plan(7, EMPTY, 0) is not None
    needs_rows = usage(24 * MIB, demand=Demand.ROWS)
    assert made.plan(1, needs_rows, 0) is None
    assert not made.is_blocked


def test_rows_are_a_limit_as_bytes_are() -> None:
    made = scheduler(3, rows_max=1000)
    full = usage(held_rows=1000)
    assert made.plan(1, full, 0) is None
    assert made.paused()


def test_partitions_at_their_end_share_one_request_that_waits() -> None:
    made = scheduler(3)
    fetch = made.plan(1, EMPTY, 0)
    assert fetch is not None
    answer(made, fetch, {}, is_behind=False)
    fetch = made.plan(1, EMPTY, 0)
    assert fetch is not None
    assert (indexes(fetch), fetch.is_waiting) == ([0, 1, 2], True)
    assert made.plan(1, EMPTY, 0) is None


def test_partitions_at_their_end_ride_along_and_nobody_waits() -> None:
    made = scheduler(3)
    fetch = made.plan(1, EMPTY, 10.0)
    assert fetch is not None
    for index in range(3):
        made.answered(index, frontier_ms=5, wire_bytes=9, batch_bytes=1, is_behind=index == 2)
    made.closed(1, fetch, 0)
    fetch = made.plan(1, EMPTY, 10.0)
    assert fetch is not None
    assert (indexes(fetch), fetch.is_waiting) == ([2, 0, 1], False)
    for index in range(3):
        made.answered(index, frontier_ms=5, wire_bytes=9, batch_bytes=1, is_behind=index == 2)
    made.closed(1, fetch, 0)
    assert indexes(made.plan(1, EMPTY, 10.0)) == [2]
    assert made.tail_due_s(1) == 10.0 + TAIL_PAUSE_S
    assert indexes(made.plan(1, EMPTY, 10.0 + TAIL_PAUSE_S)) == [0, 1]


def test_a_moved_partition_is_asked_at_its_new_leader() -> None:
    made = scheduler(2)
    made.place(1, 7)
    assert indexes(made.plan(1, EMPTY, 0)) == [0]
    assert indexes(made.plan(7, EMPTY, 0)) == [1]
    assert made.serves(7)
    made.remove(1)
    assert not made.serves(7)


def test_a_stopped_partition_is_not_asked_until_it_goes_on() -> None:
    made = scheduler(2)
    made.stop(0)
    assert indexes(made.plan(1, EMPTY, 0)) == [1]
    made.resume(0)
    assert indexes(made.plan(1, EMPTY, 0)) == [0]


def test_a_partition_that_is_not_waited_for_is_granted_nothing_beyond_the_memory() -> None:
    made = scheduler(2, bytes_max=24 * MIB)
    made.wait_for(0, is_waited_for=False)
    full = usage(24 * MIB, demand=Demand.MUST_PROGRESS)
    fetch = made.plan(1, full, 0)
    assert indexes(fetch) == [1]
    assert fetch is not None
    made.wait_for(1, is_waited_for=False)
    answer(made, fetch, {})
    assert made.plan(1, full, 0) is None


@settings(max_examples=examples(200))
@given(st.data())
def test_memory_stays_bounded_and_the_least_partition_always_comes(data: st.DataObject) -> None:
    """A reader that gives out what all partitions have reached, whatever order answers come in."""
    count = data.draw(st.integers(1, 6))
    chunk = 64 * 1024
    bytes_max = data.draw(st.integers(8, 64)) * chunk * count
    made = scheduler(count, bytes_max=bytes_max)
    ends = data.draw(st.lists(st.integers(1, 60), min_size=count, max_size=count))
    times = [0] * count  # chunk t of a partition has time t
    held = [0] * count
    in_flight: list[PlannedFetch] = []
    demand = Demand.NONE
    for _ in range(2000):
        while (fetch := made.plan(1, usage(sum(held) * chunk, demand=demand), 0)) is not None:
            in_flight.append(fetch)
            if fetch.is_on_demand:
                demand = Demand.NONE
        if in_flight:
            place = data.draw(st.integers(0, len(in_flight) - 1))
            _answer_chunks(made, in_flight.pop(place), times, ends, held, chunk)
        least = min((at for at, end in zip(times, ends, strict=True) if at < end), default=1 << 30)
        given_out = [
            max(0, kept - max(0, at - least)) for kept, at in zip(held, times, strict=True)
        ]
        held = [kept - gone for kept, gone in zip(held, given_out, strict=True)]
        demand = Demand.MUST_PROGRESS if made.is_blocked else Demand.ROWS
        demand = Demand.NONE if any(given_out) else demand
        assert sum(held) * chunk <= bytes_max + count * chunk
        if times == ends and not sum(held):
            return
    raise AssertionError((times, ends, held))


def _answer_chunks(
    made: FetchScheduler,
    fetch: PlannedFetch,
    times: list[int],
    ends: list[int],
    held: list[int],
    chunk: int,
) -> None:
    came = 0
    for planned in fetch.partitions:
        index = planned.index
        more = min(1, ends[index] - times[index])
        times[index] += more
        held[index] += more
        came += more
        is_behind = times[index] < ends[index]
        made.wait_for(index, is_waited_for=is_behind)
        made.answered(
            index,
            frontier_ms=times[index],
            wire_bytes=more * chunk,
            batch_bytes=more,
            is_behind=is_behind,
        )
    made.closed(1, fetch, came * chunk)
    made.decoded(came * chunk, memory_bytes=came * chunk, rows=came)
