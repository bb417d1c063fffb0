"""Ports that fail on order, for tests of rounds."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from tests.compaction.pipeline_world import Place

from lakelog.compaction.ports import Effects, Engine
from lakelog.compaction.tasks import Answer, Task
from lakelog.model.failures import Failure, Unavailable
from lakelog.model.ids import DomainId
from lakelog.streams.objects import WalName
from lakelog.wal.ids import object_key

T = TypeVar("T")


class Seeing(Effects):
    """Notes every effect, and calls a test before the next one of a name."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}

    async def do(self, name: str, action: Callable[[], Awaitable[T]]) -> T:
        self.seen.append(name)
        hook = self.before.pop(name, None)
        if hook is not None:
            await hook()
        return await action()


class Down:
    """A port of which the named operations (all, when none is named) fail until it is `up`."""

    def __init__(self, inner: Any, *names: str, failure: Failure | None = None) -> None:
        self.is_up = False
        self.asked = 0
        self._inner = inner
        self._names = names
        self._failure = failure or Unavailable("down")

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if self.is_up or not callable(found) or (self._names and name not in self._names):
            return found

        async def fail(*_: Any, **__: Any) -> None:
            self.asked += 1
            raise self._failure

        return fail


class Gate:
    """An engine that lets tasks of one topic wait until it is opened."""

    def __init__(self, inner: Engine, topic: str) -> None:
        self.opened = asyncio.Event()
        self.reached = asyncio.Event()
        self.runs: list[int] = []
        self._inner = inner
        self._topic = topic

    @property
    def slots(self) -> int:
        return self._inner.slots

    async def run(self, tasks: Sequence[Task]) -> Sequence[Answer]:
        self.runs.append(len(tasks))
        if any(self._topic in task.key for task in tasks):
            self.reached.set()
            await self.opened.wait()
        return await self._inner.run(tasks)


def wal_key(place: Place, stream: int, number: int = 0) -> str:
    """The WAL object of one of the stream's entries."""
    name = place.node.log.pieces(stream)[number].name
    assert isinstance(name, WalName)
    return object_key(name.zone, DomainId(0), name.wal_id)


async def damage(place: Place, stream: int, number: int = 0) -> str:
    """Flip a bit of an entry; returns the object's key."""
    piece = place.node.log.pieces(stream)[number]
    key = wal_key(place, stream, number)
    content = bytearray(await place.objects.get(key))
    content[piece.byte_start + piece.byte_length - 1] ^= 1
    await place.objects.put(key, [content])
    return key
