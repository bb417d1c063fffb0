"""What tests leave open is named, with the test, and fails their run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
from tests.left_open import LeftOpen

def pytest_configure(config):
    config.pluginmanager.register(LeftOpen(config), "left-open")
"""
TESTS = {
    "a socket": ("kept.append(socket.socket())", "socket:["),
    "a process": (
        "kept.append(subprocess.Popen([sys.executable, '-c', WAIT], stdin=-1))",
        "child ",
    ),
}
FILE = """
import socket, subprocess, sys
WAIT = "import sys; sys.stdin.read()"  # it ends with this process
kept = []

def test_that_is_tidy():
    with socket.socket():
        subprocess.run([sys.executable, "-c", ""], check=True)

def test_that_is_not():
    {statement}
"""


def ran(folder: Path, statement: str) -> "subprocess.CompletedProcess[str]":
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_some.py").write_text(FILE.format(statement=statement))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_some.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="it reads /proc")
@pytest.mark.parametrize("left", TESTS)
def test_what_a_test_leaves_open_is_named_and_fails_the_run(tmp_path: Path, left: str) -> None:
    statement, thing = TESTS[left]
    done = ran(tmp_path, statement)
    assert done.returncode == 1, done.stdout
    assert "2 passed" in done.stdout
    assert thing in done.stdout
    assert "seen first after test_some.py::test_that_is_not" in done.stdout
    assert "test_that_is_tidy" not in done.stdout


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="it reads /proc")
def test_a_run_that_leaves_nothing_open_passes(tmp_path: Path) -> None:
    done = ran(tmp_path, "pass")
    assert done.returncode == 0, done.stdout
