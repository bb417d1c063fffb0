"""An object store that remembers how it has been doing: for readiness, not for correctness."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TypeVar

from lakelog.model.failures import OutcomeUnknown, Unavailable
from lakelog.model.ranges import ByteRange
from lakelog.objects.port import Buffer, ObjectInfo, ObjectStore
from lakelog.telemetry import Metrics

ResultT = TypeVar("ResultT")


class WatchedObjects:
    """Hands every call on, and keeps what the last failure said until a call succeeds."""

    def __init__(self, store: ObjectStore, metrics: Metrics) -> None:
        self._store = store
        self._failures = metrics.unavailable.labels("objects")
        self.trouble: str | None = None
        self.skew_ms = 0
        metrics.clock_skew.set_function(lambda: self.skew_ms / 1000)

    @property
    def url(self) -> str:
        """Where the objects are, for humans; holds no secret."""
        return self._store.url

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the parts, one after another, as one object, replacing what is there."""
        await self._noted(self._store.put(key, parts))

    async def get(self, key: str) -> memoryview:
        """The whole object."""
        return await self._noted(self._store.get(key))

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """The bytes of each range, in the order asked for; no range is empty."""
        return await self._noted(self._store.get_ranges(key, ranges))

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """The objects whose key begins with `prefix`, in no order."""
        return self._store.list(prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects; those that are gone already are fine."""
        await self._noted(self._store.delete(keys))

    async def clock_skew_ms(self) -> int:
        """How far the store's clock is ahead of ours, measured now."""
        self.skew_ms = await self._store.clock_skew_ms()
        return self.skew_ms

    async def close(self) -> None:
        """Release connections and threads."""
        await self._store.close()

    async def _noted(self, call: Awaitable[ResultT]) -> ResultT:
        try:
            result = await call
        except (Unavailable, OutcomeUnknown) as failure:
            self.trouble = str(failure) or type(failure).__name__
            self._failures.inc()
            raise
        self.trouble = None
        return result
