"""Numbers that are given out once for ever, in blocks, from a counter in the metadata store.

A block is taken by compare-and-swap. When it is unknown whether that went through, another block is
taken: a number may be lost, never given out twice.
"""

from typing import Final

from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Conflict, Corrupt, OutcomeUnknown, Unavailable

ATTEMPTS_MAX: Final = 1_000
"""Every failed attempt is another's success, so this many is a store gone wrong."""

COUNTER_MAX: Final = (1 << 63) - 1


async def take_block(store: MetadataStore, key: str, size: int, *, first: int) -> range:
    """The next `size` numbers of the counter, which starts at `first`."""
    assert size > 0, size
    for _ in range(ATTEMPTS_MAX):
        found = await store.get(key)
        start = first if found is None else _number(key, found.value)
        if start + size > COUNTER_MAX:
            raise Corrupt(f"{key} has run out of numbers: it stands at {start}")
        try:
            await store.put(
                key, str(start + size).encode(), expect=0 if found is None else found.version
            )
        except (Conflict, OutcomeUnknown):
            continue
        return range(start, start + size)
    raise Unavailable(f"{key} is too contended")


async def read_counter(store: MetadataStore, key: str, *, first: int) -> int:
    """Where the counter stands now: no number from it on was given out yet."""
    found = await store.get(key)
    return first if found is None else _number(key, found.value)


def _number(key: str, value: bytes) -> int:
    if not value.isdigit() or len(value) > 20:
        raise Corrupt(f"{key} holds no number")
    return int(value)
