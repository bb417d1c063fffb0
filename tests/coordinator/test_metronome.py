"""Late ticks are excused, up to a limit."""

from lakelog.coordinator.metronome import LATE_EXCUSED_S_MAX, Metronome


def test_the_delays_of_late_ticks_add_up() -> None:
    metronome = Metronome()
    assert metronome.ticked(expected_s=100.0, now_s=101.5) == 1.5
    assert metronome.ticked(expected_s=108.0, now_s=108.25) == 0.25
    assert metronome.late_s == 1.75
    assert metronome.excused_s(since_late_s=0.0) == 1.75
    assert metronome.excused_s(since_late_s=1.5) == 0.25


def test_no_delay_is_excused_beyond_the_limit() -> None:
    metronome = Metronome()
    metronome.ticked(expected_s=100.0, now_s=400.0)
    assert metronome.excused_s(since_late_s=0.0) == LATE_EXCUSED_S_MAX


def test_an_early_tick_gives_no_time_back() -> None:
    metronome = Metronome()
    assert metronome.ticked(expected_s=100.0, now_s=99.9) == 0.0
    assert metronome.late_s == 0.0
