"""Events that clients cause are logged at a bounded rate."""

import logging

import pytest

from lakelog.server.port import EVENTS_PER_WINDOW, WINDOW_S, RateLimitedLog
from lakelog.testing.conformance_meta import ManualClock


def test_a_flood_is_told_of_a_few_times_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    clock.advance(100.0)
    quiet = RateLimitedLog(logging.getLogger("lakelog.test"), clock)
    said = [quiet.say("closed", client="a") for _ in range(100)]
    assert sum(said) == len(caplog.records) == EVENTS_PER_WINDOW
    assert quiet.say("other")  # each name has its own measure
    clock.advance(WINDOW_S)
    assert quiet.say("closed", client="b")
    assert caplog.records[-1].__dict__["fields"] == {
        "client": "b",
        "left_out": 100 - EVENTS_PER_WINDOW,
    }
