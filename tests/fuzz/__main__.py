"""Runs every fuzz target: `python -m tests.fuzz --inputs N [--target NAME] [--seed S]`.

A target takes a `random.Random` and raises when something escaped that must not. Each input has a
random stream of its own, derived from (seed, target, number), so one failure is replayed by
`--target NAME --seed S --only NUMBER`.
"""

import argparse
import importlib
import random
import sys
import time
import traceback
import warnings
from collections.abc import Callable

MODULES = ("wire", "records", "fetched", "kernels", "produce", "wal", "domain", "groups")
FAILURES_MAX = 10
"""A target stops after this many failures: they are mostly the same one."""

Target = Callable[[random.Random], None]


def targets() -> dict[str, Target]:
    found: dict[str, Target] = {}
    for name in MODULES:
        module = importlib.import_module(f"tests.fuzz.{name}")
        made: dict[str, Target] = module.TARGETS
        clash = found.keys() & made.keys()
        assert not clash, clash
        found |= made
    return found


def attempt(name: str, target: Target, seed: int, number: int) -> str | None:
    """The traceback of what escaped, or None."""
    chance = random.Random(f"{seed}/{name}/{number}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            target(chance)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - whatever escapes a parser is a finding
        return traceback.format_exc(limit=-6)
    return None


def sweep(name: str, target: Target, seed: int, numbers: range) -> int:
    """How many of these inputs escaped; each is printed with its number."""
    failures = 0
    began = time.perf_counter()
    done = 0
    for number in numbers:
        done += 1
        said = attempt(name, target, seed, number)
        if said is None:
            continue
        failures += 1
        print(f"FAILED --target {name} --seed {seed} --only {number}\n{said}", flush=True)
        if failures >= FAILURES_MAX:
            break
    spent = max(time.perf_counter() - began, 1e-9)
    print(f"{name:24} {done:>9,} inputs {done / spent:>10,.0f}/s {failures} failures", flush=True)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--target", action="append", help="only this target; may be repeated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="replay the input of this number")
    options = parser.parse_args()
    known = targets()
    chosen = {name: known[name] for name in options.target or known}
    share = -(-options.inputs // len(chosen))
    numbers = range(share) if options.only is None else range(options.only, options.only + 1)
    failures = sum(sweep(name, known[name], options.seed, numbers) for name in chosen)
    print(f"{failures} failures in {share * len(chosen):,} inputs of {len(chosen)} targets")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
