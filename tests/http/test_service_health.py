"""Readiness: told at once, counted after patience."""

from lakelog.http.service import PATIENCE_S, Health
from lakelog.testing.conformance_meta import ManualClock


class Switch:
    """A part that fails when told to."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def __call__(self) -> str | None:
        return self.reason


def test_one_slow_put_does_not_take_a_broker_out() -> None:
    clock, objects = ManualClock(), Switch()
    health = Health(clock)
    health.add("objects", objects)
    for failing_s in range(0, int(PATIENCE_S), 2):
        objects.reason = "slow"
        clock.advance(failing_s - clock.monotonic_s())
        health.look()
        state = health.states()["objects"]
        assert (state.ok, state.reason) == (True, "slow")
    objects.reason = None
    clock.advance(1)
    health.look()
    objects.reason = "slow again"
    clock.advance(PATIENCE_S - 1)
    health.look()
    assert health.states()["objects"].ok


def test_a_part_that_fails_without_a_break_is_not_ready_until_it_recovers() -> None:
    clock, metadata = ManualClock(), Switch()
    health = Health(clock)
    health.add("metadata", metadata)
    metadata.reason = "gone"
    health.look()
    clock.advance(PATIENCE_S)
    health.look()
    state = health.states()["metadata"]
    assert (state.ok, state.reason, state.failing_s) == (False, "gone", PATIENCE_S)
    metadata.reason = None
    health.look()
    assert health.states()["metadata"].ok


def test_a_part_without_patience_counts_at_once_without_a_look() -> None:
    broker = Switch()
    health = Health(ManualClock())
    health.add("broker", broker, patience_s=0.0)
    assert health.states()["broker"].ok
    broker.reason = "stopping"
    assert not health.states()["broker"].ok
    broker.reason = None
    assert health.states()["broker"].ok
