"""Time that passes when a test says so: a limit is over without anybody waiting for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

LIMIT_S = 60
"""A limit that no machine is too busy for."""


class PassingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward; sockets work as ever."""

    ahead_s = 0.0

    def time(self) -> float:
        """The loop's time, and what was added to it."""
        return super().time() + self.ahead_s


def pass_time(seconds: float) -> None:
    """Have that many seconds pass at once, in the loop that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, PassingLoop), loop
    loop.ahead_s += seconds


def run_passing(work: Coroutine[Any, Any, Result]) -> Result:
    """Run this in a loop whose time can be passed."""
    with asyncio.Runner(loop_factory=PassingLoop) as runner:
        return runner.run(work)
