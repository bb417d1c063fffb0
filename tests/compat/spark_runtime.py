"""Spark with Iceberg's own runtime, in an environment of its own, as a process that reads SQL.

The newest runtime is made for Spark 4.1, while the pipeline runs on a newer Spark: so it gets a
virtual environment and a jar below the user's cache, fetched once by pip and Maven. Where Java, pip
or Maven cannot do that, `MissingError` says why.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peer import COMPLETE, PeerAbsentError, cache_directory, run_maven
from tests.compat import spark_statements
from tests.compat.clients import MissingError

SPARK = "4.1"
SCALA = "2.13"
ICEBERG = "1.11.0"
ARTIFACT = f"iceberg-spark-runtime-{SPARK}_{SCALA}"
FETCH_TIMEOUT_S = 900.0
RUN_TIMEOUT_S = 1_800.0
SAID_CHARACTERS_MAX = 500


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one statement: rows as text, or an error."""

    rows: tuple[tuple[str | None, ...], ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SparkRuntime:
    """The Python of the environment, and the jar."""

    python: Path
    jar: Path

    def run(self, uri: str, statements: Sequence[tuple[str, str]]) -> Mapping[str, Outcome]:
        """Run named statements one after another over the catalog at the URI, called `lake`."""
        script = spark_statements.__file__
        asked = {"uri": uri, "jar": str(self.jar), "statements": list(statements)}
        done = subprocess.run(
            [str(self.python), script],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise MissingError(f"Spark ended with: {done.stderr[-SAID_CHARACTERS_MAX:]}")
        answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["answers"]
        return {name: outcome(answer) for name, answer in answers.items()}


def outcome(answer: Mapping[str, Any]) -> Outcome:
    """Read what the process printed for one statement."""
    rows = tuple(tuple(row) for row in answer.get("rows", ()))
    return Outcome(rows, answer.get("error"))


def find_runtime() -> SparkRuntime:
    """Return the runtime from the cache, or fetch it first."""
    if shutil.which("java") is None:
        raise MissingError("no java on the path")
    folder = cache_directory() / f"spark-{SPARK}-iceberg-{ICEBERG}"
    runtime = SparkRuntime(folder / "venv" / "bin" / "python", folder / f"{ARTIFACT}-{ICEBERG}.jar")
    if not (folder / COMPLETE).exists():
        folder.mkdir(parents=True, exist_ok=True)
        fetch_jar(folder)
        fetch_spark(folder / "venv")
        (folder / COMPLETE).touch()
    return runtime


def fetch_jar(folder: Path) -> None:
    """Copy the jar, which has everything in it, out of Maven's own cache."""
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingError("no mvn on the path, and nothing in the cache")
    artifact = f"org.apache.iceberg:{ARTIFACT}:{ICEBERG}"
    try:
        run_maven(
            maven, "", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"
        )
    except PeerAbsentError as error:
        raise MissingError(str(error)) from error


def fetch_spark(environment: Path) -> None:
    """Make the environment and install Spark in it."""
    commands = (
        [sys.executable, "-m", "venv", "--clear", str(environment)],
        [str(environment / "bin" / "pip"), "install", "--quiet", f"pyspark=={SPARK}.*"],
    )
    for command in commands:
        try:
            subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S
            )
        except subprocess.TimeoutExpired as error:
            raise MissingError(f"pip took longer than {FETCH_TIMEOUT_S:.0f} s") from error
        except subprocess.CalledProcessError as error:
            said = error.stderr[-SAID_CHARACTERS_MAX:]
            raise MissingError(f"pyspark {SPARK} cannot be installed: {said}") from error
