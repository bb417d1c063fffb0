"""Late ticks are excused, up to a limit."""

from lakelog.coordinator.timers import LATE_EXCUSED_S_MAX, TickLateness


def test_the_delays_of_late_ticks_add_up() -> None:
    lateness = TickLateness()
    assert lateness.ticked(expected_s=100.0, now_s=101.5) == 1.5
    assert lateness.ticked(expected_s=108.0, now_s=108.25) == 0.25
    assert lateness.late_s == 1.75
    assert lateness.excused_s(since_late_s=0.0) == 1.75
    assert lateness.excused_s(since_late_s=1.5) == 0.25


def test_no_delay_is_excused_beyond_the_limit() -> None:
    lateness = TickLateness()
    lateness.ticked(expected_s=100.0, now_s=400.0)
    assert lateness.excused_s(since_late_s=0.0) == LATE_EXCUSED_S_MAX


def test_an_early_tick_gives_no_time_back() -> None:
    lateness = TickLateness()
    assert lateness.ticked(expected_s=100.0, now_s=99.9) == 0.0
    assert lateness.late_s == 0.0
