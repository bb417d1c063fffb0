"""What the admin APIs share: a request's time, and one item's failure that stays its own."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from lakelog.broker.call import Call
from lakelog.broker.errors import Attempt, failure_code
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.topics.failures import TopicFailure

if TYPE_CHECKING:
    from lakelog.broker.broker import Broker

TIMEOUT_MS_MIN: Final = 1_000
TIMEOUT_MS_MAX: Final = 120_000
TIMEOUT_MS: Final = 30_000
"""For requests that name no time-out themselves."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Fault:
    """What a client is told instead of a result."""

    code: ErrorCode
    message: str | None


class Deadline:
    """The time that a request may take, measured from when it came."""

    def __init__(self, broker: "Broker", call: Call, timeout_ms: int = TIMEOUT_MS) -> None:
        self._clock = broker.clock
        bounded_ms = min(max(timeout_ms, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX)
        self._end_s = call.arrived_s + bounded_ms / 1000

    async def attempt(self, work: Callable[[], Awaitable[Result]]) -> Result | Fault:
        """The result of the work, or the fault to answer when it failed or the time was over."""
        left_s = self._end_s - self._clock.monotonic_s()
        if left_s <= 0:
            return Fault(ErrorCode.REQUEST_TIMED_OUT, "The request timed out.")
        try:
            async with asyncio.timeout(left_s):
                return await work()
        except TimeoutError:
            return Fault(ErrorCode.REQUEST_TIMED_OUT, "The request timed out.")
        except TopicFailure as failure:
            return Fault(failure.code, str(failure))
        except Failure as failure:
            code = failure_code(failure, Attempt.ADMINISTERING)
            return Fault(code, f"The cluster's store did not answer as it must: {failure}")
