"""Events on their way into the log of one domain, and what became of each.

An event takes its place in the log's queue before `send` returns (K11). Whoever sent it hears the
outcome of `apply`, or a code: 15 when the outcome is not known or takes too long, -1 when the event
is larger than any may be, 81 or 28 when groups hold too much already. One that is larger than a
record goes in parts, and is seen as a whole with the last of them (K10). Nothing raises for the
world's faults.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from lakelog.clock import Clock, Entropy
from lakelog.coordinator.options import GroupOptions
from lakelog.domain.event_queue import EventTooLarge
from lakelog.domain.events import GroupChange
from lakelog.domain.outcomes import GroupJudged, Outcome
from lakelog.domain.replica import Replica
from lakelog.groups.events import GroupEvent, GroupOutcome
from lakelog.groups.parts import PARTS_LEVEL, event_parts
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure, Unavailable

Heard: TypeAlias = GroupOutcome | ErrorCode
"""An outcome, or why there is none."""

AnswerT = TypeVar("AnswerT")


@dataclass(slots=True, eq=False)
class _Waiting(Generic[AnswerT]):
    until_s: float
    outcomes: "tuple[asyncio.Future[Outcome], ...]"
    """Of the event, or of all its parts; the last one is the event's."""
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

    def __init__(
        self, replica: Replica, clock: Clock, entropy: Entropy, options: GroupOptions
    ) -> None:
        self.lacks_level = asyncio.Event()
        """Set when an event could not be written because the domain does not know parts yet."""
        self.refusal: Callable[[GroupEvent], ErrorCode | None] = lambda _: None
        """The code for an event that may not be written, because groups hold too much."""
        self._replica = replica
        self._clock = clock
        self._entropy = entropy
        self._options = options
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
        code = self.refusal(event)
        if code is not None:
            answer.set_result(finish(code))
            return answer
        try:
            outcomes = self._submit(event)
        except EventTooLarge:
            answer.set_result(finish(ErrorCode.UNKNOWN_SERVER_ERROR))
            return answer
        except Unavailable:
            answer.set_result(finish(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return answer
        self._last = outcomes[-1]
        until_s = self._clock.monotonic_s() + self._options.request_timeout_ms / 1000
        waiting = _Waiting(until_s, outcomes, answer, finish)
        self._last.add_done_callback(waiting.settle)
        while self._waiting and self._waiting[0].answer.done():
            self._waiting.popleft()
        self._waiting.append(waiting)
        return answer

    def _submit(self, event: GroupEvent) -> "tuple[asyncio.Future[Outcome], ...]":
        """Queue the event, or one after another all its parts: nothing of ours comes between."""
        try:
            return (self._replica.submit(GroupChange(event)),)
        except EventTooLarge as reason:
            too_large = reason
        options = self._options
        attempt = 1 + self._entropy.below(1 << 62)
        parts = event_parts(event, bytes_max=options.sync_part_bytes_max, attempt=attempt)
        if not parts or sum(len(part.data) for part in parts) > options.sync_bytes_max:
            raise too_large
        if self._replica.state.level < PARTS_LEVEL:
            self.lacks_level.set()
            raise Unavailable("the domain is not at the level yet that knows parts of events")
        return tuple([self._replica.submit(part) for part in parts])

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
            late = waiting.popleft()
            if not late.answer.done():
                for outcome in late.outcomes:
                    self._replica.withdraw(outcome)
                late.give_up()


def _as_heard(heard: Heard) -> Heard:
    return heard
