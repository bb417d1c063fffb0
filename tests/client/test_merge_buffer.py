"""Runs and their order, what is held and what goes next: with values and then for any arrivals."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.row_cases import Scenario, at, fetched, limit, scenarios
from tests.profiles import examples
from tests.sides import side

from lakelog.client import merge_buffer as held_module
from lakelog.client.merge_buffer import TAIL_ROWS, MergeBuffer, MergedRows, SortedRun
from lakelog.client.watermark import ALL, INT64_MAX, INT64_MIN, NOTHING, Limit, Rule, squeezed
from lakelog.records import ordering


def test_rows_in_order_are_neither_sorted_nor_copied() -> None:
    rows = at(5, 5, 8)
    run = SortedRun(0, rows)
    assert run.source.order is None
    assert run.source.timestamps_ms is rows.timestamps_ms
    assert run.nbytes == rows.nbytes


def test_rows_out_of_order_go_by_time_and_then_by_offset() -> None:
    run = SortedRun(0, at(7, 5, 7, 5, first=10))
    assert run.offsets(0, 4).tolist() == [11, 13, 10, 12]
    assert run.nbytes > run.rows.nbytes


def test_unordered_rows_stay_in_the_order_of_their_offsets() -> None:
    assert SortedRun(0, at(7, 5, 6), ordered=False).offsets(0, 3).tolist() == [0, 1, 2]


def test_rows_that_were_released_before_are_left_out() -> None:
    run = SortedRun(0, at(7, 5, 6, 9, first=10), released=((0, 11), (12, 13)))
    assert run.offsets(0, 9).tolist() == [11, 13]
    assert len(run) == 2
    assert run.least_offset() == 11
    assert run.source.timestamps_ms.tolist() == [5, 9]


def test_rows_that_were_released_before_are_left_out_of_unordered_ones() -> None:
    run = SortedRun(0, at(7, 5, 6, 9), ordered=False, released=((1, 2), (90, 99)))
    assert run.offsets(0, 9).tolist() == [0, 2, 3]


def test_ranges_that_hold_nothing_of_the_run_leave_it_as_it_is() -> None:
    assert SortedRun(0, at(5, 6), released=((7, 9),)).source.order is None


def test_a_run_may_be_released_whole() -> None:
    run = SortedRun(0, at(5, 4), released=((0, 2),))
    assert len(run) == 0
    assert run.least_offset() is None


def test_the_least_offset_that_remains_is_not_that_of_the_next_row() -> None:
    run = SortedRun(0, at(9, 5, 6, first=20))
    assert [run.least_offset(start=start) for start in range(4)] == [20, 20, 20, None]
    assert [SortedRun(0, at(5, 6)).least_offset(start=start) for start in range(3)] == [0, 1, None]


def test_the_tail_is_the_least_of_the_latest_rows_only() -> None:
    assert SortedRun(0, at(1, *range(100, 100 + TAIL_ROWS))).tail_ms == 100
    assert SortedRun(0, at(*range(100, 199), 10**12)).tail_ms == 200 - TAIL_ROWS
    assert SortedRun(0, at()).tail_ms is None


@settings(deadline=None)
@given(st.lists(st.integers(-5, 5) | st.integers(INT64_MIN, INT64_MAX), max_size=30), st.booleans())
def test_a_run_is_a_stable_sort_and_knows_its_least_offset(
    times: list[int], compiled: bool
) -> None:
    with side(compiled):
        run = SortedRun(0, at(*times))
    expected = sorted(range(len(times)), key=lambda offset: times[offset])
    assert run.offsets(0, len(run)).tolist() == expected
    assert run.source.timestamps_ms.tolist() == sorted(times)
    for start in range(len(times) + 1):
        assert run.least_offset(start=start) == min(expected[start:], default=None)


def test_a_run_keeps_no_bytes_but_those_of_its_rows() -> None:
    rows = at(5, 6)
    run = SortedRun(0, rows)
    assert run.buffer.size == len(rows.data)
    assert np.shares_memory(np.frombuffer(run.buffer, np.uint8), np.frombuffer(rows.data, np.uint8))


Key = tuple[int, int, int]


@pytest.fixture(autouse=True, params=["compiled", "numpy"])
def _kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    with side(compiled=request.param == "compiled"):
        yield


def keys(taken: MergedRows | None) -> list[Key]:
    """Timestamp, index and offset of the rows."""
    if taken is None:
        return []
    numbers, _, times = taken.merged
    offsets = ordering.gather_offsets(taken.sources, taken.merged)
    indexes = [taken.runs[number].index for number in numbers.tolist()]
    return list(zip(times.tolist(), indexes, offsets.tolist(), strict=True))


def test_rows_of_several_partitions_go_by_time_then_index_then_offset() -> None:
    held = MergeBuffer(ordered=True)
    held.add(SortedRun(4, at(5, 6)))
    held.add(SortedRun(2, at(6, 5, 5)))
    assert keys(held.take(ALL, 100)) == [(5, 2, 1), (5, 2, 2), (5, 4, 0), (6, 2, 0), (6, 4, 1)]
    assert held.take(ALL, 100) is None


def test_runs_of_one_partition_go_in_the_order_of_their_arrival() -> None:
    held = MergeBuffer(ordered=True)
    held.add(SortedRun(1, at(5, 7)))
    held.add(SortedRun(0, at(5)))
    held.add(SortedRun(1, at(5, 5, first=2)))
    assert keys(held.take(Limit(5, 1), 100)) == [(5, 0, 0), (5, 1, 0), (5, 1, 2), (5, 1, 3)]


def test_nothing_goes_above_the_limit() -> None:
    held = MergeBuffer(ordered=True)
    held.add(SortedRun(1, at(5, 6, 7)))
    held.add(SortedRun(2, at(5, 6, 7)))
    assert held.take(NOTHING, 100) is None
    assert keys(held.take(Limit(6, 1), 100)) == [(5, 1, 0), (5, 2, 0), (6, 1, 1)]
    assert held.row_count == 3


def test_every_timestamp_is_within_all_and_none_within_nothing() -> None:
    held = MergeBuffer(ordered=True)
    held.add(SortedRun(0, at(INT64_MIN, -1, INT64_MAX)))
    assert held.take(NOTHING, 100) is None
    assert [time_ms for time_ms, _, _ in keys(held.take(ALL, 2))] == [INT64_MIN, -1]
    assert [time_ms for time_ms, _, _ in keys(held.take(ALL, 2))] == [INT64_MAX]


def test_no_more_rows_go_than_asked_for_and_the_least_go_first() -> None:
    held = MergeBuffer(ordered=True)
    held.add(SortedRun(1, at(5, 5, 5, 9)))
    held.add(SortedRun(2, at(4, 5, 5)))
    assert keys(held.take(ALL, 3)) == [(4, 2, 0), (5, 1, 0), (5, 1, 1)]
    assert keys(held.take(ALL, 3)) == [(5, 1, 2), (5, 2, 1), (5, 2, 2)]
    assert keys(held.take(ALL, 3)) == [(9, 1, 3)]


def test_unordered_rows_go_as_they_arrived_and_no_limit_is_asked() -> None:
    held = MergeBuffer(ordered=False)
    held.add(SortedRun(4, at(9, 8), ordered=False))
    held.add(SortedRun(2, at(5), ordered=False))
    held.add(SortedRun(4, at(7, first=2), ordered=False))
    assert keys(held.take(NOTHING, 3)) == [(9, 4, 0), (8, 4, 1), (5, 2, 0)]
    assert keys(held.take(NOTHING, 3)) == [(7, 4, 2)]
    assert held.take(NOTHING, 3) is None


def test_a_run_counts_whole_until_its_last_row_is_gone() -> None:
    held = MergeBuffer(ordered=True)
    run = SortedRun(0, at(5, 6))
    held.add(run)
    held.add(SortedRun(1, at()))
    assert (held.row_count, held.byte_count) == (2, run.nbytes)
    held.take(ALL, 1)
    assert (held.row_count, held.byte_count) == (1, run.nbytes)
    held.take(ALL, 1)
    assert (held.row_count, held.byte_count) == (0, 0)


def test_the_least_unreleased_offset_waits_for_a_row_of_a_later_time() -> None:
    held = MergeBuffer(ordered=True)
    held.add(SortedRun(3, at(9, 5, first=10)))
    held.add(SortedRun(3, at(6, 8, first=12)))
    assert held.least_unreleased(3) == 10
    held.take(Limit(8, 3), 100)
    assert held.least_unreleased(3) == 10
    assert held.greatest_released(3) == 13
    held.take(ALL, 100)
    assert held.least_unreleased(3) is None
    assert held.greatest_released(3) == 13


def test_a_partition_that_gave_nothing_has_released_nothing() -> None:
    held = MergeBuffer(ordered=True)
    held.add(SortedRun(3, at(5)))
    assert held.greatest_released(3) is None
    assert held.least_unreleased(4) is None


def test_released_ranges_are_what_is_not_held_up_to_the_position() -> None:
    held = MergeBuffer(ordered=True)
    held.add(SortedRun(0, at(9, 5, 8, 6, 9, 5, first=10)))
    assert held.released_ranges(0, 16) == ()
    held.take(Limit(8, 0), 100)
    assert held.released_ranges(0, 20) == ((11, 14), (15, 20))
    held.take(ALL, 100)
    assert held.released_ranges(0, 20) == ()


def test_a_new_holder_that_is_told_what_was_released_gives_out_the_rest() -> None:
    held = MergeBuffer(ordered=True)
    rows = at(9, 5, 8, 6, 9, 5, first=10)
    held.add(SortedRun(0, rows))
    before = keys(held.take(ALL, 4))
    again = MergeBuffer(ordered=True)
    again.add(SortedRun(0, rows, released=held.released_ranges(0, 16)))
    assert before + keys(again.take(ALL, 100)) == sorted(keys_of_all(rows.timestamps_ms.tolist()))


def keys_of_all(times: list[int]) -> list[Key]:
    return [(time_ms, 0, 10 + place) for place, time_ms in enumerate(times)]


def test_a_dropped_partition_is_gone_and_forgotten() -> None:
    held = MergeBuffer(ordered=True)
    held.add(SortedRun(0, at(5, 6)))
    held.add(SortedRun(1, at(5, 6)))
    held.take(ALL, 1)
    held.drop(0)
    held.drop(7)
    assert held.row_count == 2
    assert held.byte_count == SortedRun(1, at(5, 6)).nbytes
    assert held.least_unreleased(0) is None
    assert held.greatest_released(0) is None
    held.add(SortedRun(0, at(4)))
    assert keys(held.take(ALL, 100)) == [(4, 0, 0), (5, 1, 0), (6, 1, 1)]


def test_rows_below_the_greatest_key_that_went_are_late() -> None:
    held = MergeBuffer(ordered=True)
    held.add(SortedRun(1, at(5, 6)))
    held.take(Limit(6, 9), 100)
    held.add(SortedRun(1, at(6, 9, first=2)))
    held.add(SortedRun(0, at(5, 6, 7)))
    held.take(Limit(8, 9), 100)
    assert held.late_count == 2
    held.take(ALL, 100)
    held.add(SortedRun(0, at(8, first=3)))
    held.take(ALL, 100)
    assert held.late_count == 2


def test_a_row_is_late_even_if_a_later_one_came_between() -> None:
    held = MergeBuffer(ordered=True)
    for time_ms in (9, 3, 5, 9, 12):
        held.add(SortedRun(0, at(time_ms)))
        held.take(Limit(20, 0), 100)
    assert held.late_count == 2


def test_more_bytes_than_one_column_can_have_go_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_module, "DATA_BYTES_MAX", 12)
    held = MergeBuffer(ordered=True)
    held.add(SortedRun(0, at(5, 7, 9)))
    held.add(SortedRun(1, at(6, 8)))
    assert [keys(held.take(ALL, 100)) for _ in range(3)] == [
        [(5, 0, 0), (6, 1, 0)],
        [(7, 0, 1), (8, 1, 1)],
        [(9, 0, 2)],
    ]
    assert held.take(ALL, 100) is None
    assert (held.row_count, held.byte_count) == (0, 0)


def drained(
    scenario: Scenario, *, rule: Rule | None = None
) -> tuple[list[Key], list[Key], MergeBuffer]:
    """Everything that goes out in this scenario, what of it went while priming, and the holder."""
    held = MergeBuffer(ordered=True)
    priming: list[Key] = []
    rest: list[Key] = []
    for step in scenario.steps():
        held.add(SortedRun(step.index, fetched(step.rows)))
        bound = limit(step.progresses, rule or scenario.rule)
        while (taken := held.take(bound, scenario.rows_max)) is not None:
            assert len(taken) <= scenario.rows_max
            given_out = keys(taken)
            assert all(bound.allows(time_ms, index=index) for time_ms, index, _ in given_out)
            # What was held when the last partition became live still comes in order.
            (rest if rest or bound == ALL else priming).extend(given_out)
    return priming + rest, priming, held


def everything(scenario: Scenario) -> list[Key]:
    return sorted(
        (row.timestamp_ms, index, row.offset)
        for index, log in enumerate(scenario.logs)
        for row in log.rows
    )


@settings(deadline=None, max_examples=examples(150))
@given(scenarios())
def test_what_goes_out_is_what_came_in_and_sorted_while_priming(scenario: Scenario) -> None:
    output, priming, held = drained(scenario)
    assert sorted(output) == everything(scenario)
    assert priming == everything(scenario)[: len(priming)]
    assert (held.row_count, held.byte_count, held.late_count) == (0, 0, 0)


@settings(deadline=None, max_examples=examples(150))
@given(scenarios(with_cutoff=False), st.data())
def test_without_a_cutoff_the_output_does_not_depend_on_the_arrivals(
    scenario: Scenario, data: st.DataObject
) -> None:
    assert drained(scenario)[0] == everything(scenario)
    other = data.draw(st.permutations(scenario.arrivals))
    again = Scenario(scenario.logs, tuple(other), scenario.rule, data.draw(st.integers(1, 40)))
    assert drained(again)[0] == everything(scenario)


@settings(deadline=None, max_examples=examples(150))
@given(scenarios(with_cutoff=False))
def test_late_rows_are_counted_when_memory_comes_first(scenario: Scenario) -> None:
    output, priming, held = drained(scenario, rule=squeezed(scenario.rule))
    assert sorted(output) == everything(scenario)
    late = sum(key < max(priming[:place], default=key) for place, key in enumerate(priming))
    greatest = max(priming, default=None)
    late += sum(greatest is not None and key < greatest for key in output[len(priming) :])
    assert held.late_count == late


@settings(deadline=None, max_examples=examples(150))
@given(scenarios(with_cutoff=False), st.integers(0, 60))
def test_a_snapshot_at_any_moment_and_the_rest_of_it_are_everything_once(
    scenario: Scenario, taken_max: int
) -> None:
    held = MergeBuffer(ordered=True)
    positions = {}
    for step in scenario.steps():
        held.add(SortedRun(step.index, fetched(step.rows)))
        positions = {progress.index: progress.position for progress in step.progresses}
    before = keys(held.take(ALL, taken_max)) if taken_max else []
    again = MergeBuffer(ordered=True)
    for index, log in enumerate(scenario.logs):
        least = held.least_unreleased(index)
        if least is not None:
            rest = fetched([row for row in log.rows if row.offset >= least])
            again.add(
                SortedRun(index, rest, released=held.released_ranges(index, positions[index]))
            )
    assert before + keys(again.take(ALL, 1_000)) == everything(scenario)


def test_a_thousand_runs_of_one_timestamp_are_given_out_in_order() -> None:
    held = MergeBuffer(ordered=True)
    for number in reversed(range(1_000)):
        held.add(SortedRun(number, at(5, 5)))
    output: list[Key] = []
    while (taken := held.take(ALL, 300)) is not None:
        output += keys(taken)
    assert output == [(5, index, offset) for index in range(1_000) for offset in range(2)]
    assert held.row_count == 0
