"""A stream that cannot go on waits, longer each time, and no longer than it must."""

from dataclasses import replace

from tests.pipeline.pipeline_place import EAGER

from lakelog.pipeline.options import PipelineOptions
from lakelog.pipeline.ports import Pauses
from lakelog.testing.conformance_meta import ManualClock


def test_waits_double_up_to_their_limit() -> None:
    options = PipelineOptions(domains=1, retry_ms=100, retry_ms_max=1000)
    assert [options.wait_ms(count) for count in (1, 2, 3, 4, 5, 99)] == [
        100,
        200,
        400,
        800,
        1000,
        1000,
    ]


def test_a_stream_waits_until_its_time_is_over_or_it_went_on() -> None:
    clock = ManualClock()
    pauses = Pauses(clock, replace(EAGER, retry_ms=1000, retry_ms_max=10_000))
    assert not pauses.holds(1)
    pauses.add(1)
    assert pauses.holds(1)
    assert not pauses.holds(2)
    clock.advance(1.5)
    assert not pauses.holds(1)
    pauses.add(1)
    clock.advance(1.5)
    assert pauses.holds(1)
    pauses.end(1)
    assert not pauses.holds(1)
    pauses.add(1)
    clock.advance(1.5)
    assert not pauses.holds(1)
