"""The least of many times that move, against the rule that looks at all of them."""

from hypothesis import given
from hypothesis import strategies as st

from lakelog.client.frontiers import Frontiers
from lakelog.client.release import ALL, NOTHING, Limit, Progress, Rule, limit

TAILS = st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 9)
CHANGES = st.lists(st.tuples(st.integers(0, 5), st.booleans(), TAILS))


def test_nobody_is_waited_for_at_first() -> None:
    assert Frontiers().limit(5) == ALL


def test_a_partition_without_a_row_holds_everything_back() -> None:
    frontiers = Frontiers()
    frontiers.wait_for(1, 50)
    frontiers.wait_for(2, None)
    assert frontiers.limit(0) == NOTHING
    frontiers.forget(2)
    assert frontiers.limit(7) == Limit(43, 1)
    assert len(frontiers) == 1


@given(CHANGES, st.integers(0, 1000))
def test_the_limit_is_that_of_the_rule(
    changes: list[tuple[int, bool, int | None]], out_of_order_ms: int
) -> None:
    frontiers = Frontiers()
    waited_for: dict[int, int | None] = {}
    for index, is_waited_for, tail_ms in changes:
        if is_waited_for:
            waited_for[index] = tail_ms
            frontiers.wait_for(index, tail_ms)
        else:
            waited_for.pop(index, None)
            frontiers.forget(index)
        progresses = [Progress(each, 0, 1, 0, tail) for each, tail in waited_for.items()]
        assert frontiers.limit(out_of_order_ms) == limit(progresses, Rule(None, out_of_order_ms))


def test_old_entries_are_not_kept_for_ever() -> None:
    frontiers = Frontiers()
    frontiers.wait_for(0, 0)
    for tail_ms in range(100_000, 0, -1):
        frontiers.wait_for(1, tail_ms)
    assert len(frontiers._heap) < 5000
    assert frontiers.limit(0) == Limit(0, 0)
