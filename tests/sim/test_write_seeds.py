"""A short sweep of jobs that write objects themselves, and every seed that ever failed."""

import pytest
from tests.profiles import sampled
from tests.sim.write_scenario import run_write_seed

SWEEP = range(12)
KEPT: tuple[int, ...] = ()


@pytest.mark.parametrize("seed", [*sampled(SWEEP, 4), *KEPT])
def test_no_seed_breaks_an_invariant(seed: int) -> None:
    assert run_write_seed(seed).violations == []


@pytest.mark.proof
def test_a_seed_gives_the_same_trace_again() -> None:
    first = run_write_seed(3).trace
    run_write_seed(1)
    assert first
    assert run_write_seed(3).trace == first
