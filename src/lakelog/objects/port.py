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

A store that answers ranges with something else, loses what it accepted or lives in another time
would lose or hide data later; it is refused now, with the promise it breaks and what to do.
"""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from lakelog.clock import Entropy
from lakelog.model.failures import Corrupt, Failure, NotFound, Refused
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


SKEW_MS_MAX: Final = 15 * 60 * 1000
"""S3 itself refuses requests beyond this; ids and clean-up need far less (rule 20)."""

_SIZE: Final = 70_000
_RANGES: Final = (ByteRange(65_530, 65_540), ByteRange(0, 1), ByteRange(_SIZE - 1, _SIZE))


async def probe(store: ObjectStore, entropy: Entropy) -> None:
    """Try every promise on one small object, remove it, and raise `Refused` if one is broken."""
    key = f"probe/{entropy.token(8).hex()}"
    content = entropy.token(_SIZE)
    try:
        try:
            await _check_written(store, key, content)
            await _check_ranges(store, key, content)
            await _check_listed(store, key)
        finally:
            await store.delete([key])
        await _check_deleted(store, key)
        await _check_clock(store)
    except Refused:
        raise
    except Failure as failure:
        raise Refused(
            f"{store.url}: cannot be used: {failure}; check address, credentials and permissions "
            "(put, get, list, delete)"
        ) from failure


async def _check_written(store: ObjectStore, key: str, content: bytes) -> None:
    await store.put(key, [content[:100], content[100:]])
    for _ in range(2):
        try:
            found = bytes(await store.get(key))
        except NotFound:
            raise _broken(store, "an object that was put cannot be read at once") from None
        if found != content:
            raise _broken(store, "an object is read back with other bytes than were put")
        # WAL objects are put again after an unknown outcome: same name, same bytes (C4).
        await store.put(key, [content])


async def _check_ranges(store: ObjectStore, key: str, content: bytes) -> None:
    try:
        found = [bytes(part) for part in await store.get_ranges(key, _RANGES)]
    except Corrupt as failure:
        raise _broken(store, f"byte ranges are not served ({failure})") from failure
    if found != [content[span.start : span.end] for span in _RANGES]:
        raise _broken(store, "byte ranges are served with other bytes than were asked for")
    try:
        await store.get_ranges(key, [ByteRange(_SIZE - 1, _SIZE + 1)])
    except Corrupt:
        return
    raise _broken(store, "a range beyond the end of an object is served as if it were there")


async def _check_listed(store: ObjectStore, key: str) -> None:
    listed = {info.key: info.size_bytes async for info in store.list("probe/")}
    if listed.get(key) != _SIZE:
        raise _broken(store, "an object that was put is missing in a listing, or has another size")


async def _check_deleted(store: ObjectStore, key: str) -> None:
    try:
        await store.get(key)
    except NotFound:
        return
    raise _broken(store, "an object that was deleted can still be read")


async def _check_clock(store: ObjectStore) -> None:
    if store.url.startswith("file:"):
        return  # a clock that jumped holds clean-up back, and is no reason not to serve
    skew_ms = await store.clock_skew_ms()
    if abs(skew_ms) > SKEW_MS_MAX:
        direction = "ahead of" if skew_ms > 0 else "behind"
        raise Refused(
            f"{store.url}: its clock is {abs(skew_ms) // 1000} s {direction} this machine's; "
            "set the clocks right (NTP) and start again"
        )


def _broken(store: ObjectStore, promise: str) -> Refused:
    return Refused(
        f"{store.url}: {promise}; the log would lose data here: use a store with S3's consistency, "
        "and look for a proxy or cache in between"
    )
