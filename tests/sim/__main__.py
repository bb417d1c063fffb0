"""Runs many seeds: `python -m tests.sim --seeds N [--first S] [--jobs J]`, or one: `--seed S`.

Each seed runs four worlds, that of the log, that of groups, that of the pipeline to tables and that
of jobs that write objects themselves; `--what` chooses one of them. Prints every seed that fails,
with what was violated, and which of the states that must be reached at least once were not. A seed
that fails belongs into `seeds.txt`.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.sim.expected import MUST_REACH
from tests.sim.group_expected import MUST_REACH_GROUPS
from tests.sim.group_scenario import GroupResult, run_group_seed
from tests.sim.pipeline_scenario import MUST_REACH_PIPELINE, run_pipeline_seed
from tests.sim.scenario import Result, run_seed
from tests.sim.write_scenario import MUST_REACH_WRITES, run_write_seed

SWEEP_SEEDS_MIN = 300
"""In fewer seeds than this a rare state may be missing by chance."""

WORLDS: dict[str, tuple[Callable[[int], Result | GroupResult], set[str]]] = {
    "log": (run_seed, MUST_REACH),
    "groups": (run_group_seed, MUST_REACH_GROUPS),
    "pipeline": (run_pipeline_seed, MUST_REACH_PIPELINE),
    "writes": (run_write_seed, MUST_REACH_WRITES),
}
Attempt = tuple[int, dict[str, list[str]], set[str]]
"""A seed, what was violated by world, and what was reached, with the world's name before it."""


def attempt(worlds: tuple[str, ...], seed: int) -> Attempt:
    """Run the seed in each of the worlds."""
    violations: dict[str, list[str]] = {}
    reached: set[str] = set()
    for world in worlds:
        result = WORLDS[world][0](seed)
        violations[world] = result.violations
        reached |= {f"{world}: {state}" for state in result.reached}
    return seed, violations, reached


def show(worlds: tuple[str, ...], seed: int) -> int:
    """Run one seed and tell everything about it."""
    failed = False
    for world in worlds:
        result = WORLDS[world][0](seed)
        print(f"{world}, seed {seed}: trace {result.trace}")
        for violation in result.violations:
            print(f"  {violation}")
        for state in sorted(result.reached):
            print(f"  reached: {state}")
        failed = failed or bool(result.violations)
    return 1 if failed else 0


def sweep(worlds: tuple[str, ...], seeds: range, jobs: int, *, stop: bool) -> int:
    """Run the seeds and tell which of them fail."""
    began = time.perf_counter()
    failed: list[int] = []
    reached: Counter[str] = Counter()
    # Who stops at the first failure hears of each seed at once: the next may go on for ever.
    at_once = 1 if stop else 4
    with ProcessPoolExecutor(jobs) as pool:
        for seed, by_world, states in pool.map(partial(attempt, worlds), seeds, chunksize=at_once):
            reached.update(states)
            if any(by_world.values()):
                failed.append(seed)
                report(seed, by_world)
                if stop:
                    pool.shutdown(wait=True, cancel_futures=True)
                    return 1
    expected = {f"{world}: {state}" for world in worlds for state in WORLDS[world][1]}
    missing = sorted(expected - reached.keys()) if len(seeds) >= SWEEP_SEEDS_MIN else []
    for state in missing:
        print(f"never reached: {state}")
    spent = time.perf_counter() - began
    print(f"{len(seeds)} seeds, {len(failed)} failed, {len(seeds) / spent:.1f} seeds/s: {failed}")
    return 1 if failed or missing else 0


def report(seed: int, by_world: dict[str, list[str]]) -> None:
    """Print the first of what a seed violated."""
    for world, violations in by_world.items():
        if violations:
            print(f"seed {seed} ({world}): {len(violations)} violations", flush=True)
        for violation in violations[:5]:
            print(f"  {violation}", flush=True)


def main() -> int:
    """Do as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="only this one, with everything it reached")
    parser.add_argument("--stop", action="store_true", help="end at the first that fails")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--what", choices=(*WORLDS, "all"), default="all", help="which world")
    options = parser.parse_args()
    worlds = tuple(WORLDS) if options.what == "all" else (options.what,)
    if options.seed is not None:
        return show(worlds, options.seed)
    seeds = range(options.first, options.first + options.seeds)
    return sweep(worlds, seeds, options.jobs, stop=options.stop)


if __name__ == "__main__":
    sys.exit(main())
