"""The rule of what may go: with values, against a model that holds rows in a list, and its heap."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.row_cases import Scenario, limit, scenarios
from tests.profiles import examples

from lakelog.client.watermark import (
    ALL,
    INT64_MAX,
    INT64_MIN,
    NOTHING,
    Limit,
    Progress,
    Rule,
    Watermark,
    is_live,
    squeezed,
)

RULE = Rule(cutoff_ms=None, out_of_order_ms=10)
READING = Progress(index=3, start=0, end=100, position=50, tail_ms=1_000)


def test_a_partition_is_live_at_its_end_and_not_before() -> None:
    assert not is_live(replace(READING, position=99), RULE)
    assert is_live(replace(READING, position=100), RULE)


def test_a_position_that_passes_the_end_over_a_gap_is_live() -> None:
    assert is_live(replace(READING, position=103), RULE)


def test_an_empty_partition_is_live_at_once() -> None:
    assert is_live(Progress(index=0, start=7, end=7, position=7, tail_ms=None), RULE)


def test_a_partition_is_live_when_even_late_rows_reach_the_cutoff() -> None:
    rule = Rule(cutoff_ms=991, out_of_order_ms=10)
    assert not is_live(READING, rule)
    assert is_live(replace(READING, tail_ms=1_001), rule)


def test_a_cutoff_makes_nothing_live_before_the_first_record() -> None:
    assert not is_live(replace(READING, tail_ms=None), Rule(INT64_MIN, 0))


def test_once_live_is_live_for_good() -> None:
    assert is_live(replace(READING, was_live=True), RULE)


def test_the_limit_is_what_the_partition_furthest_behind_could_still_deliver() -> None:
    ahead = replace(READING, index=1, tail_ms=2_000)
    assert limit((ahead, READING), RULE) == Limit(990, 3)


def test_of_two_partitions_at_one_time_the_first_limits() -> None:
    assert limit((READING, replace(READING, index=2)), RULE) == Limit(990, 2)


def test_a_partition_without_a_record_holds_everything_back() -> None:
    assert limit((READING, replace(READING, index=4, tail_ms=None)), RULE) == NOTHING


def test_a_live_partition_holds_nobody_back() -> None:
    early = replace(READING, index=0, tail_ms=5, position=100)
    assert limit((early, READING), RULE) == Limit(990, 3)


def test_an_idle_partition_holds_nobody_back() -> None:
    silent = replace(READING, index=0, tail_ms=None, is_idle=True)
    assert limit((silent, READING), RULE) == Limit(990, 3)
    assert limit((silent,), RULE) == ALL


def test_everything_may_go_once_all_are_live() -> None:
    assert limit((replace(READING, position=100), replace(READING, was_live=True)), RULE) == ALL
    assert limit((), RULE) == ALL


def test_while_memory_is_short_nobody_is_waited_for_longer_than_for_their_last_row() -> None:
    assert squeezed(Rule(7, 10)) == Rule(7, 0)
    assert limit((READING,), squeezed(RULE)) == Limit(1_000, 3)


def test_a_limit_below_every_timestamp_allows_nothing() -> None:
    assert limit((replace(READING, tail_ms=INT64_MIN + 9),), RULE) == NOTHING
    assert limit((replace(READING, tail_ms=INT64_MIN + 10),), RULE) == Limit(INT64_MIN, 3)


def test_a_limit_allows_its_own_key_and_those_below() -> None:
    key = Limit(10, 3)
    assert key.allows(10, index=3)
    assert key.allows(10, index=0)
    assert key.allows(9, index=8)
    assert not key.allows(10, index=4)
    assert not key.allows(11, index=0)


def test_all_allows_every_row_and_nothing_allows_none() -> None:
    for timestamp_ms in (INT64_MIN, -1, INT64_MAX):
        assert ALL.allows(timestamp_ms, index=1_000)
        assert not NOTHING.allows(timestamp_ms, index=0)


Key = tuple[int, int, int]


def keys(scenario: Scenario) -> list[Key]:
    """The keys of all rows, sorted."""
    return sorted(
        (row.timestamp_ms, index, row.offset)
        for index, log in enumerate(scenario.logs)
        for row in log.rows
    )


@settings(deadline=None, max_examples=examples(300))
@given(scenarios())
def test_nothing_goes_before_a_row_that_should_precede_it_has_arrived(scenario: Scenario) -> None:
    missing, held, given_out = set(keys(scenario)), set[Key](), list[Key]()
    bound = NOTHING
    for step in scenario.steps():
        arrived = {(row.timestamp_ms, step.index, row.offset) for row in step.rows}
        missing -= arrived
        held |= arrived
        bound = limit(step.progresses, scenario.rule)
        if bound == ALL:
            break
        going = sorted(key for key in held if bound.allows(key[0], index=key[1]))
        held.difference_update(going)
        given_out += going
        assert not going or not missing or going[-1] < min(missing)
    # What is held when the last partition becomes live comes sorted after all that went before.
    given_out += sorted(held)
    assert given_out == sorted(given_out)
    assert bound == ALL


@settings(deadline=None, max_examples=examples(300))
@given(scenarios(with_cutoff=False))
def test_without_a_cutoff_the_last_arrival_and_no_earlier_one_lets_all_go(
    scenario: Scenario,
) -> None:
    bounds = [limit(step.progresses, scenario.rule) for step in scenario.steps()]
    assert bounds[-1] == ALL
    assert all(bound != ALL for bound in bounds[:-1])


TAILS = st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 9)
CHANGES = st.lists(st.tuples(st.integers(0, 5), st.booleans(), TAILS))


def test_nobody_is_waited_for_at_first() -> None:
    assert Watermark().limit(5) == ALL


def test_a_partition_without_a_row_holds_everything_back() -> None:
    watermark = Watermark()
    watermark.wait_for(1, 50)
    watermark.wait_for(2, None)
    assert watermark.limit(0) == NOTHING
    watermark.forget(2)
    assert watermark.limit(7) == Limit(43, 1)
    assert len(watermark) == 1


@given(CHANGES, st.integers(0, 1000))
def test_the_limit_is_that_of_the_rule(
    changes: list[tuple[int, bool, int | None]], out_of_order_ms: int
) -> None:
    watermark = Watermark()
    waited_for: dict[int, int | None] = {}
    for index, is_waited_for, tail_ms in changes:
        if is_waited_for:
            waited_for[index] = tail_ms
            watermark.wait_for(index, tail_ms)
        else:
            waited_for.pop(index, None)
            watermark.forget(index)
        progresses = [Progress(each, 0, 1, 0, tail) for each, tail in waited_for.items()]
        assert watermark.limit(out_of_order_ms) == limit(progresses, Rule(None, out_of_order_ms))


def test_old_entries_are_not_kept_for_ever() -> None:
    watermark = Watermark()
    watermark.wait_for(0, 0)
    for tail_ms in range(100_000, 0, -1):
        watermark.wait_for(1, tail_ms)
    assert len(watermark._heap) < 5000
    assert watermark.limit(0) == Limit(0, 0)
