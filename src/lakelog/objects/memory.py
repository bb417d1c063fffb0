"""An object store in memory: for tests, simulations and throw-away brokers. Deterministic."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from lakelog.clock import Clock
from lakelog.model.failures import Corrupt, NotFound, Unavailable
from lakelog.model.ids import ByteRange
from lakelog.objects.port import Buffer, ObjectInfo, confined, confined_prefix, whole


@dataclass(frozen=True, slots=True)
class _Stored:
    content: bytes
    modified_ms: int


class MemoryObjectStore:
    """Objects of one process; `another` shares them, like a second process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[str, _Stored] = {}
        self._closed = False

    def another(self) -> "MemoryObjectStore":
        """A second handle on the same objects, also after this one was closed."""
        other = MemoryObjectStore(self._clock)
        other._objects = self._objects
        return other

    @property
    def url(self) -> str:
        """Where the objects are, for humans."""
        return "memory:"

    def _open(self) -> dict[str, _Stored]:
        if self._closed:
            raise Unavailable("the object store is closed")
        return self._objects

    def _content(self, key: str) -> bytes:
        stored = self._open().get(confined(key))
        if stored is None:
            raise NotFound(f"memory:{key}: no such object")
        return stored.content

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the parts, one after another, as one object, replacing what is there."""
        content = b"".join(parts)
        self._open()[confined(key)] = _Stored(content, self._clock.now_ms())

    async def get(self, key: str) -> memoryview:
        """The whole object."""
        return memoryview(self._content(key))

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """The bytes of each range, in the order asked for."""
        content = memoryview(self._content(key))
        for span in whole(ranges):
            if span.end > len(content):
                raise Corrupt(f"memory:{key}: has {len(content)} bytes, {span} was asked for")
        return [content[span.start : span.end] for span in ranges]

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """The objects whose key begins with `prefix`, sorted, as of now."""
        confined_prefix(prefix)
        for key, stored in sorted(self._open().items()):
            if key.startswith(prefix):
                yield ObjectInfo(key, len(stored.content), stored.modified_ms)

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects; those that are gone already are fine."""
        objects = self._open()
        for key in keys:
            objects.pop(confined(key), None)

    async def clock_skew_ms(self) -> int:
        """Nothing: the clock is the same."""
        return 0

    async def close(self) -> None:
        """Release this handle; the objects stay for other handles."""
        self._closed = True
