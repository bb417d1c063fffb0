"""The port to the object store: whole objects in, byte ranges out, keys that stay in their prefix.

Rules every backend keeps, and the conformance suite checks:

- A put is durable when it returns, and visible to every later read of anybody. A put of the same
  key with the same bytes may be repeated at any time (WAL objects are named once: C4).
- A missing object is `NotFound`; a range beyond the end, or an answer of another length than was
  asked for, is `Corrupt`; everything that a repeat may heal is `Unavailable` or, for a put,
  `OutcomeUnknown`.
- Keys are relative, `/`-separated, made of `[A-Za-z0-9._=-]` segments that are not `.` or `..`;
  anything else is a bug of the caller (S3: no key leaves the prefix).
- Listing is only for finding garbage: nothing relies on it for correctness.

A key is made of our own ids, never of what a client sent; one that breaks these rules is a bug of
the caller and stops it (S3).
"""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from lakelog.model.ids import ByteRange

KEY_CHARACTERS_MAX: Final = 900
"""S3 allows 1,024 bytes with the prefix."""

_KEY: Final = re.compile(r"[A-Za-z0-9._=-]+(?:/[A-Za-z0-9._=-]+)*")


def is_key(key: str) -> bool:
    """Whether this is a relative key of plain segments, none of them `.` or `..`."""
    return (
        len(key) <= KEY_CHARACTERS_MAX
        and _KEY.fullmatch(key) is not None
        and not any(segment in (".", "..") for segment in key.split("/"))
    )


def confined(key: str) -> str:
    """The key, which is asserted to stay under its prefix."""
    assert is_key(key), f"not an object key: {key!r}"
    return key


def confined_prefix(prefix: str) -> str:
    """The prefix of a listing, which is asserted to be empty or a key and a slash."""
    assert not prefix or (prefix[-1] == "/" and is_key(prefix[:-1])), f"not a prefix: {prefix!r}"
    return prefix


def whole(ranges: Sequence[ByteRange]) -> Sequence[ByteRange]:
    """The ranges, none of which may be empty: stores disagree on what that would mean."""
    assert all(len(span) > 0 for span in ranges), ranges
    return ranges


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
