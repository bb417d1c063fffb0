"""The same jobs on executors of their own and through Spark Connect."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.proof, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[3]


def run(kind: str) -> dict[str, object]:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.spark.elsewhere", kind],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    told: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
    return told


def test_killed_executors_are_replaced_and_a_killed_spark_is_told() -> None:
    told = run("cluster")
    assert (told["first"], told["after"]) == (20, 6)
    assert told["killed"] in (1, 2)
    assert told["loss"] == "its Java process ended with code -9"
    assert told["failure"] == f"Spark: {told['loss']}"


def test_spark_connect_runs_and_cancels_the_same_jobs() -> None:
    told = run("connect")
    assert told == {"slots": 2, "first": 20, "quick": 1, "cancelled": True, "after": 2}
