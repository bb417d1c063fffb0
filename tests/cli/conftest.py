"""Running commands in this process, against a broker in this process."""

import io
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakelog.cli.main import run
from lakelog.testing.broker import EmbeddedBroker


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


Command = Callable[..., Ran]


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command writes its events to the standard error of its test, which then is gone."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Command:
    """Run a command with some standard input, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def runner(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run(arguments)
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return runner


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """One broker for the tests of a file."""
    with EmbeddedBroker() as started:
        yield started
