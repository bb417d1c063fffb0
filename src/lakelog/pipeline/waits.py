"""Waits with a limit, and for many at once: what their end means, and that nothing is left."""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

from lakelog.model.failures import Failure, OutcomeUnknown, Unavailable

T = TypeVar("T")


async def reading(work: Awaitable[T], *, limit_s: float) -> T:
    """The answer to a question; `Unavailable` when it does not come in time."""
    try:
        async with asyncio.timeout(limit_s):
            return await work
    except TimeoutError:
        raise Unavailable(f"no answer within {limit_s:g} s") from None


async def writing(work: Awaitable[T], *, limit_s: float) -> T:
    """The reply to a change; `OutcomeUnknown` when it does not come in time."""
    try:
        async with asyncio.timeout(limit_s):
            return await work
    except TimeoutError:
        raise OutcomeUnknown(f"no reply within {limit_s:g} s") from None


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results, in order; the first failure ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(work) for work in works]
    except BaseExceptionGroup as errors:
        failures, others = errors.split(Failure)
        if others is not None or failures is None:
            raise
        raise failures.exceptions[0] from None
    return [one.result() for one in running]
