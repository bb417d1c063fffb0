"""The child beside a broker: heard, started again, and ended with it."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pipeline.spark.processes import until

from lakelog.clock import SystemClock
from lakelog.model.failures import Refused
from lakelog.pipeline.child_process import ChildOptions, keep_child_running, repeat
from lakelog.retry import Backoff

QUICK = ChildOptions(pause=Backoff(10, 20), stop_s=30.0)

Fields = dict[str, object]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, Fields]]]:
    caplog.set_level(logging.DEBUG, logger="lakelog.pipeline")
    return lambda: [
        (record.getMessage(), getattr(record, "fields", {})) for record in caplog.records
    ]


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


def fine() -> None:
    return None


def refuse() -> None:
    raise Refused("the pipeline needs Java: install it")


async def cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def names(said: Callable[[], list[tuple[str, Fields]]]) -> list[str]:
    return [name for name, _ in said()]


def test_what_is_missing_is_said_once_and_nothing_is_started(
    tmp_path: Path, said: Callable[[], list[tuple[str, Fields]]]
) -> None:
    command = python("import sys; open(sys.argv[1], 'w')", tmp_path / "started")
    asyncio.run(keep_child_running(command, refuse, SystemClock(), QUICK))
    ((name, fields),) = said()
    assert (name, str(fields["reason"])) == (
        "pipeline_off",
        "the pipeline needs Java: install it",
    )
    assert not list(tmp_path.iterdir())


def test_a_child_that_ends_is_started_again(
    said: Callable[[], list[tuple[str, Fields]]],
) -> None:
    async def scenario() -> None:
        command = python("import sys; print('Error: x', file=sys.stderr); sys.exit(3)")
        task = asyncio.create_task(keep_child_running(command, fine, SystemClock(), QUICK))
        await until(lambda: names(said).count("pipeline_ended") >= 3)
        await cancelled(task)

    asyncio.run(scenario())
    ended = [fields for name, fields in said() if name == "pipeline_ended"]
    assert ended[0]["code"] == 3
    assert ("pipeline_said", {"line": "Error: x"}) in said()


def test_a_program_that_is_not_there_does_not_end_the_broker(
    said: Callable[[], list[tuple[str, Fields]]],
) -> None:
    async def scenario() -> None:
        task = asyncio.create_task(keep_child_running(["/no/such"], fine, SystemClock(), QUICK))
        await until(lambda: names(said).count("pipeline_failed") >= 2)
        await cancelled(task)

    asyncio.run(scenario())


def test_the_child_is_told_to_end_and_waited_for(tmp_path: Path) -> None:
    code = """
import pathlib, signal, sys
place = pathlib.Path(sys.argv[1])
def end(number, frame):
    (place / "ended").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
(place / "started").touch()
signal.pause()
"""

    async def scenario() -> None:
        command = python(code, tmp_path)
        task = asyncio.create_task(keep_child_running(command, fine, SystemClock(), QUICK))
        await until((tmp_path / "started").exists)
        await cancelled(task)
        assert (tmp_path / "ended").exists()

    asyncio.run(scenario())


def test_a_child_that_does_not_end_is_killed(tmp_path: Path) -> None:
    code = """
import os, pathlib, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
place = pathlib.Path(sys.argv[1])
(place / "part").write_text(str(os.getpid()))
(place / "part").rename(place / "pid")
while True:
    signal.pause()
"""

    async def scenario() -> None:
        options = ChildOptions(stop_s=0.1)
        command = python(code, tmp_path)
        task = asyncio.create_task(keep_child_running(command, fine, SystemClock(), options))
        await until((tmp_path / "pid").exists)
        await cancelled(task)

    asyncio.run(scenario())
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGCONT)


def test_events_of_the_child_keep_their_names_levels_and_fields(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="lakelog.pipeline")
    repeat('{"ts": 1, "level": "warning", "logger": "l", "event": "obstacle", "topic": "t"}')
    (record,) = caplog.records
    assert (record.getMessage(), record.levelno) == ("pipeline_obstacle", logging.WARNING)
    assert record.__dict__["fields"] == {"topic": "t"}


@pytest.mark.parametrize("line", ["", "plain", "[1]", '"text"', "null", '{"event": 1}', "{}"])
def test_any_other_line_is_passed_on_as_it_is(line: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="lakelog.pipeline")
    repeat(line)
    (record,) = caplog.records
    assert (record.getMessage(), record.__dict__["fields"]) == ("pipeline_said", {"line": line})


def test_a_line_without_end_is_no_harm(said: Callable[[], list[tuple[str, Fields]]]) -> None:
    async def scenario() -> None:
        code = "import sys; sys.stderr.write('x' * 3_000_000 + '\\nlast\\n')"
        task = asyncio.create_task(keep_child_running(python(code), fine, SystemClock(), QUICK))
        await until(lambda: "pipeline_ended" in names(said))
        await cancelled(task)

    asyncio.run(scenario())
    assert ("pipeline_said", {"line": "last"}) in said()
