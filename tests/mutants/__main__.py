"""Plants known bugs, one at a time, and sees each one caught: `python -m tests.mutants`.

The package is copied into a temporary directory, one piece of its text is replaced, and the tests
or simulation seeds that must notice run against the copy. A bug that nobody notices, or whose text
is no longer there, fails the run. `--only WORDS` takes the plants whose name holds the words.
"""

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.plant import Plant

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 400


def all_plants() -> list[Plant]:
    """The plants of every file beside this one that has some."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    modules = [importlib.import_module(f"tests.mutants.{name}") for name in names if name[0] != "_"]
    return [plant for module in modules for plant in getattr(module, "PLANTS", ())]


def commands(plant: Plant) -> list[list[str]]:
    """What must fail, the quickest first."""
    made = []
    if plant.tests:
        quiet = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
        paths = [str(ROOT / test) for test in plant.tests]
        made.append(
            [sys.executable, "-m", "pytest", *quiet, "-c", f"{ROOT}/pyproject.toml", *paths]
        )
    if plant.seeds:
        some = ["--first", str(plant.seeds.start), "--seeds", str(len(plant.seeds)), "--stop"]
        made.append([sys.executable, "-m", "tests.sim", *some])
    return made


def baseline(chosen: Sequence[Plant]) -> Plant:
    """No bug at all, and everybody who has to notice one of these."""
    tests = sorted({test for one in chosen for test in one.tests})
    return Plant("nothing", (), tuple(tests), range(max(one.seeds.stop for one in chosen)))


def planted(plant: Plant, folder: Path) -> str | None:
    """Copy the package with the bug in it; returns what is wrong with the plant."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for change in plant.changes:
        path = folder / "src" / "lakelog" / change.file
        text = path.read_text()
        if text.count(change.before) != 1:
            return f"{change.file} holds the text {text.count(change.before)} times"
        path.write_text(text.replace(change.before, change.after))
    return None


def verdict(plant: Plant) -> tuple[bool, str]:
    """Whether the bug was caught, and by what."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        problem = planted(plant, folder)
        if problem is not None:
            return False, f"DOES NOT APPLY: {problem}"
        environment = {
            **os.environ,
            "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{ROOT}",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TEST_PROFILE": "full",
        }
        for command in commands(plant):
            said = _run(command, environment, folder)
            if said is not None:
                return True, said
    return False, "MISSED"


def _run(command: list[str], environment: dict[str, str], folder: Path) -> str | None:
    """What noticed the bug, or None."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return "it never ended"
    if done.returncode == 0:
        return None
    lines = [
        line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "seed "))
    ]
    said = (lines or done.stderr.splitlines() or ["?"])[-1]
    _, found, place = said.partition("tests/")
    return found + place if found else said


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", help="plants whose name holds these words")
    options = parser.parse_args()
    chosen = [one for one in all_plants() if not options.only or options.only in one.name]
    sound, said = verdict(baseline(chosen))
    if sound:
        print(f"the tests fail without any plant: {said}")
        return 1
    missed = []
    for plant in chosen:
        began = time.perf_counter()
        caught, said = verdict(plant)
        spent = time.perf_counter() - began
        print(f"{'caught' if caught else 'MISSED'} {plant.name} ({spent:.0f} s): {said[:110]}")
        sys.stdout.flush()
        if not caught:
            missed.append(plant.name)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} caught; missed: {missed}")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
