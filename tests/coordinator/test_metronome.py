"""Time that we stood still does not count."""

from lakelog.coordinator.metronome import Metronome


def test_a_late_tick_takes_its_delay_out_of_time() -> None:
    metronome = Metronome()
    assert metronome.time_s(100.0) == 100.0
    assert metronome.ticked(expected_s=100.0, now_s=107.5) == 7.5
    assert metronome.time_s(107.5) == 100.0
    assert metronome.ticked(expected_s=108.0, now_s=108.25) == 0.25
    assert metronome.time_s(110.0) == 102.25


def test_an_early_tick_gives_no_time_back() -> None:
    metronome = Metronome()
    assert metronome.ticked(expected_s=100.0, now_s=99.9) == 0.0
    assert metronome.time_s(100.0) == 100.0
