"""Nothing that is proved gets lost: every folder of tests is in a step, every step can be run."""

from importlib.util import find_spec
from pathlib import Path

from tests.proof import AREAS, DEEP, ROOT, USUAL, Result, Step, is_proved, steps, table


def files_with_tests() -> list[Path]:
    return [path for path in (ROOT / "tests").glob("*/**/*.py") if path.stem.startswith("test_")]


def test_every_folder_with_tests_is_in_one_step() -> None:
    named = [name for area in AREAS.values() for name in area.split()]
    there = {path.parent.relative_to(ROOT / "tests").parts[0] for path in files_with_tests()}
    assert sorted(named) == sorted(there)


def test_every_step_is_a_module_that_exists() -> None:
    for step in (*steps(USUAL), *steps(DEEP)):
        flag, module = step.arguments[:2]
        assert flag == "-m"
        assert find_spec(module) is not None, step


def test_steps_have_names_of_their_own() -> None:
    names = [step.name for step in steps(USUAL)]
    assert len(names) == len(set(names))


def result(*, passed: bool = True, sources: str = "now", shows: str = "all") -> Result:
    return Result("tests", shows, sources, passed, 61, "7 passed | 0 failed")


def test_a_step_is_run_again_when_it_failed_or_anything_changed() -> None:
    step = Step("tests", "all", ("-m", "pytest"))
    assert is_proved(step, result(), "now")
    assert not is_proved(step, None, "now")
    assert not is_proved(step, result(passed=False), "now")
    assert not is_proved(step, result(sources="before"), "now")
    assert not is_proved(step, result(shows="less"), "now")


def test_the_table_names_what_failed() -> None:
    rows = table([result(), result(passed=False)]).splitlines()
    assert rows[2] == "| tests | all | passed | 1.0 | 7 passed / 0 failed |"
    assert "FAILED" in rows[3]
