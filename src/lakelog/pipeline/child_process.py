"""The pipeline as a child process, beside a broker: started, heard, started again, and ended.

Rules: the broker never waits for it and never fails because of it; what it lacks is said once, in
one line, and then there is no pipeline; a child that ends is started again, ever more slowly while
that keeps happening; it ends when the broker does, even one that is killed, for its standard input
ends then. It is no member of the terminal's group, so that Ctrl+C reaches the broker alone.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from lakelog.clock import Clock
from lakelog.model.failures import Refused
from lakelog.retry import Backoff
from lakelog.telemetry import event

LINE_BYTES_MAX: Final = 1 << 20
RESTART: Final = Backoff(1_000, 60_000)
log = logging.getLogger("lakelog.pipeline")


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """How patient we are with the child."""

    pause: Backoff = RESTART
    """Before it is started again."""
    healthy_s: float = 300.0
    """A child that lived so long has done well, and the next pause is the first again."""
    stop_s: float = 10.0
    """How long it may take to end before it is killed."""


async def keep_child_running(
    command: Sequence[str],
    check: Callable[[], None],
    clock: Clock,
    options: ChildOptions | None = None,
) -> None:
    """Keep the child running until this is cancelled; `check` raises `Refused` when it cannot.

    `check` may block for a moment, so it runs on a thread.
    """
    options = options or ChildOptions()
    try:
        await asyncio.get_running_loop().run_in_executor(None, check)
    except Refused as reason:
        event(log, "pipeline_off", logging.WARNING, reason=reason)
        return
    failures = 0
    while True:
        began_s = clock.monotonic_s()
        code: int | None = None
        try:
            code = await _run_once(command, options)
        except OSError as error:
            event(log, "pipeline_failed", logging.ERROR, reason=error)
        was_healthy = clock.monotonic_s() - began_s >= options.healthy_s
        failures = 1 if was_healthy else failures + 1
        pause_s = options.pause.grown_s(failures)
        if code is not None:
            event(log, "pipeline_ended", logging.WARNING, code=code, again_in_s=pause_s)
        await asyncio.sleep(pause_s)


async def _run_once(command: Sequence[str], options: ChildOptions) -> int:
    child = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        limit=LINE_BYTES_MAX,
        start_new_session=True,
    )
    assert child.stderr is not None
    try:
        await _hear(child.stderr)
        return await child.wait()
    finally:
        await _stop(child, options.stop_s)


async def _hear(lines: asyncio.StreamReader) -> None:
    """Pass on what the child says, until it says nothing more."""
    while True:
        try:
            line = await lines.readline()
        except ValueError:  # longer than any line should be: the rest of it follows
            continue
        if not line:
            return
        repeat(line.decode("utf-8", "replace").rstrip())


def repeat(line: str) -> None:
    """Say as an event of ours what the child said: its own events by their names."""
    try:
        said = json.loads(line)
        name, level = f"pipeline_{said.pop('event')}", str(said.pop("level")).upper()
    except (ValueError, KeyError, TypeError, AttributeError):
        event(log, "pipeline_said", logging.WARNING, line=line)
        return
    fields = {str(key): value for key, value in said.items() if key not in ("ts", "logger")}
    number = logging.getLevelNamesMapping().get(level, logging.INFO)
    event(log, name, number, **fields)


async def _stop(child: asyncio.subprocess.Process, stop_s: float) -> None:
    if child.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        child.terminate()
    try:
        async with asyncio.timeout(stop_s):
            await child.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
