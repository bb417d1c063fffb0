"""A timer runs from when it was first seen, and the brokers act one after another."""

from lakelog.coordinator.timers import RANK_DELAY_S, DueTimer, TickLateness, Timers
from lakelog.groups.state import Timer, TimerKind

JOIN = Timer(TimerKind.JOIN, "", 1, 5_000)


def test_a_timer_runs_from_when_it_was_first_seen() -> None:
    timers = Timers(TickLateness())
    timers.see("g", (JOIN,), 0.0)
    timers.see("g", (JOIN,), 3.0)
    assert timers.take_due(4.9) == []
    assert timers.take_due(5.0) == [DueTimer("g", JOIN)]


def test_a_timer_that_the_group_no_longer_has_never_runs_out() -> None:
    timers = Timers(TickLateness())
    timers.see("g", (JOIN,), 0.0)
    timers.see("g", (), 1.0)
    assert timers.take_due(1e9) == []
    assert len(timers) == 0


def test_another_number_is_another_timer() -> None:
    timers = Timers(TickLateness())
    timers.see("g", (JOIN,), 0.0)
    second = Timer(TimerKind.JOIN, "", 2, 5_000)
    timers.see("g", (second,), 4.0)
    assert timers.take_due(8.9) == []
    assert timers.take_due(9.0) == [DueTimer("g", second)]


def test_a_broker_gives_those_before_it_time_to_act_first() -> None:
    timers = Timers(TickLateness())
    timers.see("g", (JOIN,), 0.0)
    (due,) = timers.take_due(5.0)
    assert timers.hold_back(due, rank=2, now_s=5.0)
    assert timers.take_due(5.0 + 2 * RANK_DELAY_S - 0.1) == []
    (again,) = timers.take_due(5.0 + 2 * RANK_DELAY_S)
    assert not timers.hold_back(again, rank=2, now_s=9.0)


def test_the_first_broker_does_not_wait() -> None:
    timers = Timers(TickLateness())
    timers.see("g", (JOIN,), 0.0)
    (due,) = timers.take_due(5.0)
    assert not timers.hold_back(due, rank=0, now_s=5.0)


def test_a_timer_that_nobody_acts_on_runs_out_again() -> None:
    timers = Timers(TickLateness())
    timers.see("g", (JOIN, Timer(TimerKind.REVOKE, "m", 1, 0)), 0.0)
    assert len(timers.take_due(5.0)) == 2
    assert len(timers.take_due(5.0)) == 0
    assert len(timers.take_due(10.0)) == 2


def test_all_timers_begin_anew_in_full() -> None:
    timers = Timers(TickLateness())
    timers.see("g", (JOIN,), 0.0)
    timers.restart(4.0)
    assert timers.take_due(8.9) == []
    assert timers.take_due(9.0) == [DueTimer("g", JOIN)]


def test_a_timer_begins_anew_once() -> None:
    timers = Timers(TickLateness())
    timers.see("g", (JOIN,), 0.0)
    timers.restart(4.0)
    timers.restart(8.0)
    assert timers.take_due(9.0) == [DueTimer("g", JOIN)]


def test_late_ticks_are_excused_once_for_each_timer() -> None:
    lateness = TickLateness()
    timers = Timers(lateness)
    timers.see("g", (JOIN,), 0.0)
    lateness.ticked(expected_s=4.0, now_s=5.0)
    assert timers.take_due(5.0) == []
    lateness.ticked(expected_s=5.1, now_s=6.0)
    assert timers.take_due(6.0) == [DueTimer("g", JOIN)]
