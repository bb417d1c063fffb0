"""A short sweep of the simulation of groups, and every seed that ever failed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from tests.profiles import sampled
from tests.sim.group_expected import MUST_REACH_GROUPS
from tests.sim.group_scenario import run_group_seed

from lakelog.groups.events import GroupEvent

SWEEP = range(12)
KEPT = [
    int(line.split()[0])
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
]


@pytest.mark.parametrize("seed", [*KEPT, *sampled([seed for seed in SWEEP if seed not in KEPT], 4)])
def test_no_seed_breaks_an_invariant_of_groups(seed: int) -> None:
    assert run_group_seed(seed).violations == []


def test_a_sweep_must_reach_outcomes_of_events_that_there_are() -> None:
    outcomes = [text.partition(" was ") for text in MUST_REACH_GROUPS]
    kinds = {kind for kind, _, outcome in outcomes if outcome.startswith(("taken in", "refused"))}
    assert kinds <= {kind.__name__ for kind in get_args(GroupEvent)}
    assert len(kinds) > 8


@pytest.mark.proof
def test_a_seed_of_groups_gives_the_same_trace_in_another_process() -> None:
    """With another hash seed, and after other seeds ran here: nothing leaks into the next."""
    script = "from tests.sim.group_scenario import run_group_seed as run; print(run({}).trace)"
    seeds = (3, 9)
    here = [run_group_seed(seed).trace for seed in seeds]
    for hash_seed, seed, expected in zip(("1", "77"), seeds, here, strict=True):
        other = subprocess.run(
            [sys.executable, "-c", script.format(seed)],
            env={
                **os.environ,
                "PYTHONHASHSEED": hash_seed,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        assert other.stdout.strip() == expected
        assert expected
