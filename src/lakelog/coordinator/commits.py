"""Committed offsets on their way into the log.

Commits of many members share records, because they share the queue of their domain. One that is
larger than a record goes in parts; each part is judged on its own, and the client hears the first
that is refused: what was taken in before is no harm, the client commits it again.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from lakelog.coordinator.group_domain import EventResult, GroupDomain
from lakelog.domain.event_queue import EVENT_BYTES_MAX
from lakelog.groups.events import CommitOffsets, Judged, encode_group_event
from lakelog.groups.state import ClassicGroup
from lakelog.model.errors import ErrorCode
from lakelog.telemetry import Count

ROW_BYTES_MAX: Final = 64
"""An offset without its text: a topic id, four numbers, and what encloses them."""

CHARACTER_BYTES_MAX: Final = 4


class Commits:
    """Takes commits in."""

    def __init__(self, renew: Callable[[str, str], None], committed: Count) -> None:
        self._renew = renew
        self._committed = committed

    def commit(self, domain: GroupDomain, event: CommitOffsets) -> "asyncio.Future[ErrorCode]":
        """What the client hears; the event is queued before this returns."""
        parts = commit_parts(event, bytes_max=EVENT_BYTES_MAX)
        answers = [domain.outbox.request(part, partial(self._finish, domain, part)) for part in parts]
        return answers[0] if len(answers) == 1 else _first_refusal(answers)

    def _finish(self, domain: GroupDomain, event: CommitOffsets, heard: EventResult) -> ErrorCode:
        if not isinstance(heard, Judged):
            return heard if isinstance(heard, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
        if heard.code is ErrorCode.NONE:
            self._committed.inc(len(event.offsets))
            # A classic member that commits is alive; one of a consumer group has to say so.
            if isinstance(domain.group(event.group_id), ClassicGroup):
                self._renew(event.group_id, event.member_id)
        return heard.code


def commit_parts(event: CommitOffsets, *, bytes_max: int) -> tuple[CommitOffsets, ...]:
    """The commit in events that are not larger than this, as far as single offsets allow."""
    # Measuring is encoding, so it is done only where a bound leaves doubt.
    if _bound_bytes(event) <= bytes_max or len(event.offsets) <= 1:
        return (event,)
    if len(encode_group_event(event)) <= bytes_max:
        return (event,)
    half = len(event.offsets) // 2
    halves = (event.offsets[:half], event.offsets[half:])
    return tuple(
        part
        for offsets in halves
        for part in commit_parts(replace(event, offsets=offsets), bytes_max=bytes_max)
    )


def _bound_bytes(event: CommitOffsets) -> int:
    """What the event surely does not exceed."""
    names = len(event.group_id) + len(event.member_id) + len(event.instance_id or "")
    characters = names + sum(len(row[4]) for row in event.offsets)
    return ROW_BYTES_MAX * (1 + len(event.offsets)) + CHARACTER_BYTES_MAX * characters


def _first_refusal(answers: "list[asyncio.Future[ErrorCode]]") -> "asyncio.Future[ErrorCode]":
    """A future of the first code that is not NONE, once all are there."""
    whole: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    missing = len(answers)

    def count(_: "asyncio.Future[ErrorCode]") -> None:
        nonlocal missing
        missing -= 1
        if missing == 0 and not whole.done():
            codes = [answer.result() for answer in answers]
            refused = [code for code in codes if code is not ErrorCode.NONE]
            whole.set_result(refused[0] if refused else ErrorCode.NONE)

    for answer in answers:
        answer.add_done_callback(count)
    return whole
