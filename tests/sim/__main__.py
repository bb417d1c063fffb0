"""Runs many seeds: `python -m tests.sim --seeds N [--first S] [--jobs J]`, or one: `--seed S`.

Prints every seed that fails, with what was violated, and which of the states that must be reached
at least once were not. A seed that fails belongs into `seeds.txt`.
"""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.sim.expected import MUST_REACH
from tests.sim.scenario import Result, run_seed

SWEEP_SEEDS_MIN = 300
"""In fewer seeds than this a rare state may be missing by chance."""


def attempt(seed: int) -> tuple[int, list[str], set[str]]:
    result = run_seed(seed)
    return seed, result.violations, result.reached


def show(result: Result) -> int:
    print(f"seed {result.seed}: trace {result.trace}, {len(result.history.sent)} batches sent")
    for violation in result.violations:
        print(f"  {violation}")
    for state in sorted(result.reached):
        print(f"  reached: {state}")
    return 1 if result.violations else 0


def sweep(seeds: range, jobs: int, *, stop: bool) -> int:
    began = time.perf_counter()
    failed: list[int] = []
    reached: Counter[str] = Counter()
    with ProcessPoolExecutor(jobs) as pool:
        for seed, violations, states in pool.map(attempt, seeds, chunksize=4):
            reached.update(states)
            if violations:
                failed.append(seed)
                print(f"seed {seed}: {len(violations)} violations", flush=True)
                for violation in violations[:5]:
                    print(f"  {violation}", flush=True)
                if stop:
                    pool.shutdown(wait=True, cancel_futures=True)
                    return 1
    missing = sorted(MUST_REACH - reached.keys()) if len(seeds) >= SWEEP_SEEDS_MIN else []
    for state in missing:
        print(f"never reached: {state}")
    spent = time.perf_counter() - began
    print(f"{len(seeds)} seeds, {len(failed)} failed, {len(seeds) / spent:.1f} seeds/s: {failed}")
    return 1 if failed or missing else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="only this one, with everything it reached")
    parser.add_argument("--stop", action="store_true", help="end at the first that fails")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.seed is not None:
        return show(run_seed(options.seed))
    return sweep(
        range(options.first, options.first + options.seeds), options.jobs, stop=options.stop
    )


if __name__ == "__main__":
    sys.exit(main())
