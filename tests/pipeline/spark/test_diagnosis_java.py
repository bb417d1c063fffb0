"""Which Java is found, and what is said when none fits."""

from pathlib import Path

import pytest

from lakelog.model.failures import Refused
from lakelog.pipeline.spark.diagnosis import find_java, parse_major


def java_in(directory: Path, said: str, *, code: int = 0) -> Path:
    """A program that says that on its standard error, as Java does."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit {code}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21" 2023-09-19 LTS', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25-ea" 2025-09-16', 25),
        ("Segmentation fault", None),
    ],
)
def test_the_version_is_read_from_what_java_says(said: str, major: int | None) -> None:
    assert parse_major(said) == major


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    home = java_in(tmp_path / "home", 'openjdk version "21.0.1"')
    on_path = java_in(tmp_path / "path", 'openjdk version "17.0.1"')
    environment = {"PATH": f"{on_path.parent}:/bin:/usr/bin"}
    assert find_java(environment).major == 17
    found = find_java({**environment, "JAVA_HOME": str(tmp_path / "home")})
    assert (found.major, found.path) == (21, str(home))


@pytest.mark.parametrize(
    ("said", "complaint"),
    [('openjdk version "11.0.2"', "is version 11"), ("what?", "does not say its version")],
)
def test_a_java_that_does_not_fit_is_refused_with_what_to_install(
    tmp_path: Path, said: str, complaint: str
) -> None:
    java_in(tmp_path, said)
    with pytest.raises(Refused, match=complaint) as refused:
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/bin:/usr/bin"})
    assert "install Java 17 or newer" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_java_at_all_is_refused_with_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="there is none: install Java 17"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(Refused, match=r"JAVA_HOME has no .*java: install Java 17"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/bin:/usr/bin"})
    broken = tmp_path / "bin" / "java"
    broken.parent.mkdir()
    broken.write_text("no program")
    with pytest.raises(Refused, match="does not run: install Java 17"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
