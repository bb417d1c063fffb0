"""Which Java there is, before Spark is started: its own report of a missing one helps nobody."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lakelog.model.failures import Refused

JAVA_MIN: Final = 17
ANSWER_S: Final = 30.0
"""A Java that does not tell its version within this time is none."""

REMEDY: Final = (
    f"install Java {JAVA_MIN} or newer (Debian and Ubuntu: apt install openjdk-17-jre-headless;"
    " macOS: brew install openjdk@17) or set JAVA_HOME to one"
)
_VERSION: Final = re.compile(r'version "(?P<first>\d+)(\.(?P<second>\d+))?')


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark."""

    path: str
    major: int


def find_java(environment: Mapping[str, str]) -> Java:
    """The Java that Spark will use: that of JAVA_HOME, else that of PATH; raises `Refused`."""
    path = _path(environment)
    try:
        said = subprocess.run(  # noqa: S603 - the user's own Java
            [path, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(f"the pipeline needs Java, but {path} does not run: {REMEDY}") from error
    major = parse_major(said.stderr + said.stdout)
    if major is None:
        raise Refused(f"the pipeline needs Java, but {path} does not say its version: {REMEDY}")
    if major < JAVA_MIN:
        raise Refused(f"the pipeline needs Java, but {path} is version {major}: {REMEDY}")
    return Java(path, major)


def parse_major(said: str) -> int | None:
    """The major version in what `java -version` says, None where there is none."""
    found = _VERSION.search(said)
    if found is None:
        return None
    first = int(found["first"])
    # Java 8 called itself 1.8.
    return int(found["second"]) if first == 1 and found["second"] else first


def _path(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME", "")
    if home:
        # As Spark's scripts do: a JAVA_HOME that is set counts, even if it is wrong.
        path = Path(home) / "bin" / "java"
        if not path.is_file():
            raise Refused(f"the pipeline needs Java, but JAVA_HOME has no {path}: {REMEDY}")
        return str(path)
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found is None:
        raise Refused(f"the pipeline needs Java, and there is none: {REMEDY}")
    return found
