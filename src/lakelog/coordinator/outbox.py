"""Events on their way into the log of one domain, and what became of each.

An event takes its place in the log's queue before `send` returns (K11). Whoever sent it hears the
outcome of `apply`, or a code: 15 when the outcome is not known or takes too long, -1 when the event
is larger than a record may be. Nothing raises for the world's faults.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from lakelog.clock import Clock
from lakelog.domain.events import GroupChange
from lakelog.domain.outcomes import GroupJudged, Outcome
from lakelog.domain.replica import Replica
from lakelog.domain.writer import EventTooLarge
from lakelog.groups.events import GroupEvent
from lakelog.groups.outcomes import GroupOutcome
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure, Unavailable

Heard: TypeAlias = GroupOutcome | ErrorCode
"""An outcome, or why there is none."""

AnswerT = TypeVar("AnswerT")


@dataclass(slots=True, eq=False)
class _Waiting(Generic[AnswerT]):
    until_s: float
    outcome: "asyncio.Future[Outcome]"
    answer: "asyncio.Future[AnswerT]"
    finish: Callable[[Heard], AnswerT]

    def settle(self, outcome: "asyncio.Future[Outcome]") -> None:
        error = None if outcome.cancelled() else outcome.exception()
        if outcome.cancelled() or isinstance(error, Failure):
            self.give_up()
        elif not self.answer.done():
            judged = outcome.result()
            assert isinstance(judged, GroupJudged), judged
            self.answer.set_result(self.finish(judged.outcome))

    def give_up(self) -> None:
        if not self.answer.done():
            self.answer.set_result(self.finish(ErrorCode.COORDINATOR_NOT_AVAILABLE))


class Outbox:
    """The way of this broker's group events into one domain."""

    def __init__(self, replica: Replica, clock: Clock, *, timeout_s: float) -> None:
        self._replica = replica
        self._clock = clock
        self._timeout_s = timeout_s
        self._last: asyncio.Future[Outcome] | None = None
        self._waiting: deque[_Waiting[Any]] = deque()

    def send(self, event: GroupEvent) -> "asyncio.Future[Heard]":
        """Queue the event; the future never fails."""
        return self.ask(event, _as_heard)

    def ask(
        self, event: GroupEvent, finish: Callable[[Heard], AnswerT]
    ) -> "asyncio.Future[AnswerT]":
        """The same; the answer is what `finish` makes of what is heard."""
        answer: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        try:
            outcome = self._replica.submit(GroupChange(event))
        except EventTooLarge:
            answer.set_result(finish(ErrorCode.UNKNOWN_SERVER_ERROR))
            return answer
        except Unavailable:
            answer.set_result(finish(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return answer
        self._last = outcome
        until_s = self._clock.monotonic_s() + self._timeout_s
        waiting = _Waiting(until_s, outcome, answer, finish)
        outcome.add_done_callback(waiting.settle)
        while self._waiting and self._waiting[0].answer.done():
            self._waiting.popleft()
        self._waiting.append(waiting)
        return answer

    async def settled(self) -> None:
        """Return when everything that was sent before has an outcome, or never will."""
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last])

    def sweep(self, now_s: float) -> None:
        """Those who waited too long hear 15.

        Their events are taken back if they still wait too: the client asks again, perhaps
        elsewhere, and what lands after that would be old. One in flight may still be taken in.
        """
        waiting = self._waiting
        while waiting and (waiting[0].until_s <= now_s or waiting[0].answer.done()):
            one = waiting.popleft()
            if not one.answer.done():
                self._replica.withdraw(one.outcome)
                one.give_up()


def _as_heard(heard: Heard) -> Heard:
    return heard
