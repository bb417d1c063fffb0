"""A part of the crash matrix: every effect of every story fails once, and some of the rest.

`make proof` runs every single point and a sample of the pairs; `python -m
tests.pipeline.saga.crash_matrix --pairs` runs all of it.
"""

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from tests.pipeline.saga.crash_matrix import Case, attempt, pairs, singles
from tests.profiles import sampled

from lakelog.pipeline.saga.steps import EFFECTS

PAIR_STEP = 499
"""A prime, so that the pairs taken are of all kinds."""

PAIRS_IN_TEST_STEP = 6


def points() -> list[ParameterSet]:
    """Each effect of each story in one way, the ways in turn; the others for `make proof`."""
    ways: dict[tuple[str, str], list[Case]] = {}
    for case in singles():
        ways.setdefault((case.story, case.points[0].effect), []).append(case)
    return [
        pytest.param(case, marks=() if number == turn % len(cases) else pytest.mark.proof)
        for turn, cases in enumerate(ways.values())
        for number, case in enumerate(cases)
    ]


def test_the_matrix_has_a_point_for_every_effect() -> None:
    reached = {point.effect for case in singles() for point in case.points}
    assert reached == set(EFFECTS)
    assert {point.effect for case in pairs() for point in case.points} == reached


@pytest.mark.parametrize("case", points(), ids=str)
def test_an_effect_that_fails_changes_nothing_in_the_end(case: Case, tmp_path: Path) -> None:
    assert attempt(case, tmp_path)[1] == []


@pytest.mark.parametrize("case", sampled([*pairs()][::PAIR_STEP], PAIRS_IN_TEST_STEP), ids=str)
def test_two_effects_that_fail_change_nothing_in_the_end(case: Case, tmp_path: Path) -> None:
    assert attempt(case, tmp_path)[1] == []
