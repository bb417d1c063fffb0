"""The time limit of one call."""

from lakelog.client.deadline import Deadline


class ManualClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s


def test_a_deadline_counts_down_and_ends_at_nothing() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 2.0)
    assert deadline.left_s() == 2.0
    clock.now_s += 1.5
    assert deadline.left_s() == 0.5
    assert not deadline.is_over()
    clock.now_s += 5
    assert deadline.left_s() == 0.0
    assert deadline.is_over()


def test_failures_are_counted() -> None:
    deadline = Deadline(ManualClock(), 1.0)
    assert [deadline.failed() for _ in range(3)] == [1, 2, 3]
