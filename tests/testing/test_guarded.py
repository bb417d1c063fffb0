"""G1: the guard finds every deletion of what is named, and lets all others pass."""

import asyncio
from collections.abc import Awaitable, Callable, Collection

import pytest

from lakelog.clock import SystemClock
from lakelog.objects.memory import MemoryObjectStore
from lakelog.testing.guarded import GuardedObjects


async def store(*keys: str) -> GuardedObjects:
    guard = GuardedObjects(MemoryObjectStore(SystemClock()))
    for key in keys:
        await guard.put(key, [b"x"])
    return guard


def witness(*answers: Collection[str]) -> Callable[[], Awaitable[Collection[str]]]:
    """Names these keys, one answer after another; the last one from then on."""
    left = list(answers)

    async def named() -> Collection[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return named


def test_what_a_witness_names_is_not_deleted() -> None:
    async def scenario() -> None:
        guard = await store("a", "b")
        guard.witnesses = {"an entry": witness(["x"]), "a snapshot": witness(["b"])}
        with pytest.raises(AssertionError, match="G1 b: deleted, but named by a snapshot"):
            await guard.delete(["a", "b"])
        assert await guard.keys() == {"a", "b"}
        assert len(guard.violations) == 1
        await guard.delete(["a"])
        assert guard.deleted == ["a"]

    asyncio.run(scenario())


def test_a_name_that_is_given_while_the_object_goes_is_found() -> None:
    async def scenario() -> None:
        guard = await store("a")
        guard.witnesses = {"an entry": witness([], ["a"])}
        with pytest.raises(AssertionError, match="G1 a"):
            await guard.delete(["a"])
        assert await guard.missing() == ["a (an entry)"]

    asyncio.run(scenario())
