"""A part of the crash matrix: every effect of the ordinary course in every way, and some others.

`python -m tests.compaction.crash_matrix --pairs` runs all of it.
"""

from pathlib import Path

import pytest
from tests.compaction.crash_matrix import Case, Story, attempt, pairs, singles

from lakelog.compaction.saga import EFFECTS

PAIR_STEP = 499
"""A prime, so that the pairs taken are of all kinds."""

SAMPLE_STEP = 4
SAMPLED = (Story.REWRITTEN, Story.CLEANED, Story.UNREADABLE, Story.SEGMENT)
SINGLES = [
    *(case for case in singles() if case.story not in SAMPLED),
    *[case for case in singles() if case.story in SAMPLED][::SAMPLE_STEP],
]


def test_the_matrix_has_a_point_for_every_effect() -> None:
    reached = {point.effect for case in singles() for point in case.points}
    assert reached == set(EFFECTS)
    assert {point.effect for case in pairs() for point in case.points} == reached


@pytest.mark.slow
@pytest.mark.parametrize("case", SINGLES, ids=str)
def test_an_effect_that_fails_changes_nothing_in_the_end(case: Case, tmp_path: Path) -> None:
    assert attempt(case, tmp_path)[1] == []


@pytest.mark.slow
@pytest.mark.parametrize("case", [*pairs()][::PAIR_STEP], ids=str)
def test_two_effects_that_fail_change_nothing_in_the_end(case: Case, tmp_path: Path) -> None:
    assert attempt(case, tmp_path)[1] == []
