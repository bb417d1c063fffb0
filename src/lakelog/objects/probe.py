"""Whether an object store keeps the promises that the log rests on, asked once at start.

A store that answers ranges with something else, loses what it accepted or lives in another time
would lose or hide data later; it is refused now, with the promise it breaks and what to do.
"""

from typing import Final

from lakelog.clock import Entropy
from lakelog.model.failures import Corrupt, Failure, NotFound, Refused
from lakelog.model.ids import ByteRange
from lakelog.objects.port import ObjectStore

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
