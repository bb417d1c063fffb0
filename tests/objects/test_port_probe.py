"""A store that breaks a promise is refused by the name of the promise; nothing is left there."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from lakelog.clock import SeededEntropy, SystemClock
from lakelog.model.failures import NotFound, Refused, Unavailable
from lakelog.model.ids import ByteRange
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import Buffer, ObjectInfo, probe
from lakelog.testing.conformance_objects import listed


class Loses(MemoryObjectStore):
    async def get(self, key: str) -> memoryview:
        raise NotFound(key)


class Garbles(MemoryObjectStore):
    async def get(self, key: str) -> memoryview:
        return memoryview(bytes(await super().get(key))[:-1] + b"!")


class IgnoresRanges(MemoryObjectStore):
    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        return [await self.get(key) for _ in ranges]


class CutsRanges(MemoryObjectStore):
    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        content = await self.get(key)
        return [content[span.start : span.end] for span in ranges]


class ListsNothing(MemoryObjectStore):
    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        nothing: list[ObjectInfo] = []
        for info in nothing:
            yield info


class KeepsDeleted(MemoryObjectStore):
    async def delete(self, keys: Sequence[str]) -> None:
        return


class LivesAhead(MemoryObjectStore):
    async def clock_skew_ms(self) -> int:
        return 16 * 60 * 1000


class LivesBehind(MemoryObjectStore):
    async def clock_skew_ms(self) -> int:
        return -16 * 60 * 1000


class WritesOnce(MemoryObjectStore):
    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if key in await listed(self, ""):
            raise Unavailable("412, PreconditionFailed")
        await super().put(key, parts)


class Forbids(MemoryObjectStore):
    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        raise Unavailable("403, AccessDenied")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Loses, "cannot be read at once"),
        (Garbles, "other bytes than were put"),
        (IgnoresRanges, "other bytes than were asked for"),
        (CutsRanges, "beyond the end"),
        (ListsNothing, "missing in a listing"),
        (KeepsDeleted, "deleted can still be read"),
        (LivesAhead, "960 s ahead of"),
        (LivesBehind, "960 s behind"),
        (WritesOnce, "PreconditionFailed"),
        (Forbids, "AccessDenied.*check address, credentials"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_a_broken_promise_is_refused_by_name(kind: type[MemoryObjectStore], said: str) -> None:
    async def run() -> None:
        store = kind(SystemClock())
        with pytest.raises(Refused, match=said) as caught:
            await probe(store, SeededEntropy("x"))
        assert store.url in str(caught.value)
        if kind not in (KeepsDeleted, ListsNothing):
            assert await listed(store, "") == {}

    asyncio.run(run())
