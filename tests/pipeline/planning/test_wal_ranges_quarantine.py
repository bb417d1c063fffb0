"""Bad batches that follow each other closely take twice as much along each time."""

from hypothesis import given
from hypothesis import strategies as st

from lakelog.pipeline.planning.wal_ranges import NEAR, widened


def test_the_first_bad_batch_is_kept_alone() -> None:
    assert widened((), start=5, end=8, limit=100) == (5, 8)
    assert widened(((50, 60),), start=5, end=8, limit=100) == (5, 8)  # it lies behind


def test_one_that_is_close_takes_twice_as_much_along_and_no_more_than_the_task_has() -> None:
    assert widened(((0, 10),), start=15, end=18, limit=100) == (15, 35)
    assert widened(((0, 10), (12, 13)), start=15, end=18, limit=100) == (15, 18)
    assert widened(((0, 10),), start=15, end=18, limit=20) == (15, 20)
    assert widened(((0, 2),), start=15, end=30, limit=100) == (15, 30)


def test_one_that_is_far_is_kept_alone() -> None:
    far = 10 + NEAR * 10
    assert widened(((0, 10),), start=far - 1, end=far, limit=far + 50) == (far - 1, far + 19)
    assert widened(((0, 10),), start=far, end=far + 1, limit=far + 50) == (far, far + 1)


@given(st.integers(1, 3000), st.integers(1, 400))
def test_however_many_are_bad_the_tasks_that_fail_are_few(count: int, every: int) -> None:
    """Every so many batches one is bad; tasks have all that is left."""
    end = count * every
    quarantine: list[tuple[int, int]] = []
    failures = at = 0
    while at < end:
        bad = -(-at // every) * every
        if bad >= end:
            break
        failures += 1
        quarantine = [*quarantine, widened(quarantine, start=bad, end=bad + 1, limit=end)][-64:]
        at = quarantine[-1][1]
    assert failures <= 1 + end.bit_length()
