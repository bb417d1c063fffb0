"""Events that clients cause are logged at a bounded rate."""

import logging

import pytest

from lakelog.server.port import EVENTS_PER_WINDOW, WINDOW_S, RateLimitedLog


class HandClock:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def monotonic_s(self) -> float:
        return self.at_s


def test_a_flood_is_told_of_a_few_times_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    quiet = RateLimitedLog(logging.getLogger("lakelog.test"), clock)
    said = [quiet.say("closed", client="a") for _ in range(100)]
    assert sum(said) == len(caplog.records) == EVENTS_PER_WINDOW
    assert quiet.say("other")  # each name has its own measure
    clock.at_s += WINDOW_S
    assert quiet.say("closed", client="b")
    assert caplog.records[-1].__dict__["fields"] == {
        "client": "b",
        "left_out": 100 - EVENTS_PER_WINDOW,
    }
