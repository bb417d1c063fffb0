"""How long to wait before the next attempt, and until when there is one."""

from hypothesis import given
from hypothesis import strategies as st

from lakelog.clock import SeededEntropy
from lakelog.retry import Backoff, RetryDeadline
from lakelog.testing.conformance_meta import ManualClock


class Middle:
    """Chance that always lies in the middle."""

    def token(self, size: int) -> bytes:
        return bytes(size)

    def below(self, bound: int) -> int:
        return bound // 2


def started_clock() -> ManualClock:
    """A deadline is counted from now, which is not 0."""
    clock = ManualClock()
    clock.advance(100.0)
    return clock


def test_the_wait_doubles_up_to_its_maximum() -> None:
    backoff = Backoff(100, 1000)
    waits = [0.0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert [backoff.delay_s(failures, Middle()) for failures in range(7)] == waits
    assert [backoff.grown_s(failures) for failures in range(7)] == waits


def test_a_wait_may_be_less_than_a_millisecond() -> None:
    assert [Backoff(0.25, 1.0).grown_ms(failures) for failures in range(5)] == [0, 0.25, 0.5, 1, 1]


def test_without_a_first_wait_there_is_none() -> None:
    assert Backoff(0, 1000).delay_s(5, Middle()) == 0.0


@given(st.integers(1, 10_000), st.integers(0, 100_000), st.integers(1, 10**9), st.text())
def test_a_wait_is_within_a_fifth_of_what_it_should_be(
    first_ms: int, more_ms: int, failures: int, seed: str
) -> None:
    backoff = Backoff(first_ms, first_ms + more_ms)
    wait_s = backoff.delay_s(failures, SeededEntropy(seed))
    assert first_ms * 0.8 <= wait_s * 1000 + 1e-6
    assert wait_s * 1000 <= backoff.max_ms * 1.2 + 1e-6


def test_clients_do_not_return_at_one_moment() -> None:
    backoff = Backoff(1000, 10_000)
    waits = {backoff.delay_s(3, SeededEntropy(str(client))) for client in range(50)}
    assert len(waits) > 30


def test_a_deadline_counts_down_and_ends_at_nothing() -> None:
    clock = started_clock()
    deadline = RetryDeadline(clock, 2.0)
    assert deadline.left_s() == 2.0
    clock.advance(1.5)
    assert deadline.left_s() == 0.5
    assert not deadline.is_over()
    clock.advance(5)
    assert deadline.left_s() == 0.0
    assert deadline.is_over()


def test_failures_are_counted() -> None:
    deadline = RetryDeadline(started_clock(), 1.0)
    assert [deadline.failed() for _ in range(3)] == [1, 2, 3]


def test_there_is_another_attempt_while_time_and_failures_are_left() -> None:
    deadline = RetryDeadline(started_clock(), 1.0, failures_max=2)
    assert deadline.allows(0.9)
    assert not deadline.allows(1.0)
    deadline.failed()
    assert deadline.allows(0.9)
    deadline.failed()
    assert not deadline.allows(0.0)
