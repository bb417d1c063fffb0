"""How thoroughly a run of the tests looks: quick for `make test`, full for `make proof`.

`examples(n)` is for properties that need more or fewer examples than the profile gives: the full
number in a full run, a fifth of it (at least 10) in a quick one. `sampled(cases, step)` leaves
every step-th case to both and the others to `make proof`.

A quick run makes the same examples every time, so that it says the same thing twice; a full one
makes others each time, and it is there that a new counterexample is found.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

IS_FULL = os.environ.get("TEST_PROFILE", "quick") == "full"
QUICK_EXAMPLES = 30
FULL_EXAMPLES = 200
QUICK_SHARE = 5
EXAMPLES_MIN = 10

CaseT = TypeVar("CaseT")


def load_profile() -> None:
    """Examples may take as long as they take: the machine may be busy."""
    settings.register_profile(
        "quick", deadline=None, max_examples=QUICK_EXAMPLES, derandomize=True, database=None
    )
    settings.register_profile("full", deadline=None, max_examples=FULL_EXAMPLES, print_blob=True)
    settings.load_profile("full" if IS_FULL else "quick")


def examples(full: int) -> int:
    """So many examples in a full run, a share of them in a quick one."""
    return full if IS_FULL else max(EXAMPLES_MIN, full // QUICK_SHARE)


def sampled(cases: Sequence[CaseT], step: int) -> list[ParameterSet]:
    """All of the cases; those that are not the first of `step` are for `make proof` alone."""
    return [
        pytest.param(case, marks=() if number % step == 0 else pytest.mark.proof)
        for number, case in enumerate(cases)
    ]
