"""The port to the object store: whole objects in, byte ranges out.

Rules every backend keeps, and the conformance suite checks:

- A put is durable when it returns, and visible to every later read of anybody. A put of the same
  key with the same bytes may be repeated at any time (WAL objects are named once: C4).
- A missing object is `NotFound`; a range beyond the end, or an answer of another length than was
  asked for, is `Corrupt`; everything that a repeat may heal is `Unavailable` or, for a put,
  `OutcomeUnknown`.
- Keys are relative, `/`-separated, made of `[A-Za-z0-9._=-]` segments that are not `.` or `..`;
  anything else is a bug of the caller (S3: no key leaves the prefix).
- Listing is only for finding garbage: nothing relies on it for correctness.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from lakelog.model.ranges import ByteRange

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What may be written: parts are put one after another without being joined first."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing says of an object."""

    key: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """Objects under one prefix of one bucket or directory."""

    @property
    def url(self) -> str:
        """Where the objects are, for humans; holds no secret."""

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the parts, one after another, as one object, replacing what is there."""

    async def get(self, key: str) -> memoryview:
        """The whole object."""

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """The bytes of each range, in the order asked for; no range is empty."""

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """The objects whose key begins with `prefix` (ends with `/` or is empty), in no order."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects; those that are gone already are fine."""

    async def clock_skew_ms(self) -> int:
        """How far the store's clock is ahead of ours, measured now; 0 where they are the same."""

    async def close(self) -> None:
        """Release connections and threads."""
