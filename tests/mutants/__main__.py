"""Plants known bugs, one at a time, and sees each one caught: `python -m tests.mutants`.

The package is copied into a temporary directory, one piece of its text is replaced, and the tests
or simulation seeds that must notice run against the copy. A bug that nobody notices, or whose text
is no longer there, fails the run. `--only WORDS` takes the plants whose name holds the words.
"""

import argparse
import importlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.plant import KERNELS, PACKAGE, Plant
from tests.sides import compiler

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 1200
"""A bug may make a run hang, and is caught then; on a busy machine a sound one takes minutes."""

PLANTS_AT_ONCE = 2
"""Each runs one process most of the time."""

BASELINE_TIMEOUT_S = 7200
"""The same for everything that has to notice some bug, without any."""


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
    for name in ("src", "native"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for change in plant.changes:
        path = change.path(folder)
        text = path.read_text()
        if text.count(change.before) != 1:
            return f"{change.file} holds the text {text.count(change.before)} times"
        path.write_text(text.replace(change.before, change.after))
    if any(change.file.startswith(KERNELS) for change in plant.changes):
        return built(folder)
    return None


def built(folder: Path) -> str | None:
    """Compile the kernels of a copy; returns why that did not work."""
    cc = compiler()
    if cc is None:
        return "there is no C compiler"
    place = folder / PACKAGE / "_native.abi3.so"
    place.unlink(missing_ok=True)
    flags = ("-std=c11", "-O1", "-fPIC", "-shared", "-DPy_LIMITED_API=0x030B0000")
    sources = sorted(str(path) for path in (folder / KERNELS).glob("*.c"))
    include = f"-I{sysconfig.get_path('include')}"
    command = [cc, *flags, include, *sources, "-o", str(place)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return said.stderr if said.returncode else None


def verdict(plant: Plant, *, timeout_s: float = TIMEOUT_S) -> tuple[bool, str]:
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
            said = _run(command, environment, folder, timeout_s)
            if said is not None:
                return True, said
    return False, "MISSED"


def _run(
    command: list[str], environment: dict[str, str], folder: Path, timeout_s: float
) -> str | None:
    """What noticed the bug, or None."""
    with subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            output, errors = running.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # with the processes that it started
            return "it never ended"
    if running.returncode == 0:
        return None
    lines = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR", "seed "))]
    said = (lines or errors.splitlines() or ["?"])[-1]
    _, found, place = said.partition("tests/")
    return found + place if found else said


def _timed(plant: Plant) -> tuple[Plant, tuple[bool, str], float]:
    began = time.perf_counter()
    return plant, verdict(plant), time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", help="plants whose name holds these words")
    options = parser.parse_args()
    chosen = [one for one in all_plants() if not options.only or options.only in one.name]
    fails, said = verdict(baseline(chosen), timeout_s=BASELINE_TIMEOUT_S)
    if fails:
        print(f"the tests fail without any plant: {said}")
        return 1
    missed = []
    with ThreadPoolExecutor(PLANTS_AT_ONCE) as pool:
        for plant, (caught, said), spent in pool.map(_timed, chosen):
            print(f"{'caught' if caught else 'MISSED'} {plant.name} ({spent:.0f} s): {said[:110]}")
            sys.stdout.flush()
            if not caught:
                missed.append(plant.name)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} caught; missed: {missed}")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
