"""Numbers that are given out once for ever, in blocks, from a counter in the metadata store.

A block is taken by compare-and-swap. When it is unknown whether that went through, another block is
taken: a number may be lost, never given out twice.

Producer ids are such numbers (row 24), and every broker can tell which were given out: every id
below the counter may be somebody's, and none from it on is. What a broker knows of the counter may
be old: before it says that an id was never given out, it reads the counter, after the question
came. One read serves everyone who waits, so a storm of invented ids costs no more than one.
"""

import asyncio
from typing import Final

from lakelog.meta import keys
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Conflict, Corrupt, OutcomeUnknown, Unavailable
from lakelog.model.ids import ProducerId

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


PRODUCER_BLOCK: Final = 1_000
FIRST_PRODUCER: Final = 0


class ProducerIds:
    """Gives out producer ids, and knows those that were given out."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._block = iter(range(0))
        self._taking = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._reads_begun = 0
        self._read_answered = 0  # the newest that did
        self.known_end = FIRST_PRODUCER
        """Ids below it were given out; of the others `was_given_out` knows."""

    async def next(self) -> ProducerId:
        """A producer id that nobody got before."""
        async with self._taking:
            number = next(self._block, None)
            if number is None:
                block = await take_block(
                    self._store, keys.NEXT_PRODUCER, PRODUCER_BLOCK, first=FIRST_PRODUCER
                )
                self._learn(block.stop)
                self._block = iter(block)
                number = next(self._block)
            return ProducerId(number)

    async def was_given_out(self, producer: int) -> bool:
        """Whether anybody may have got this id before the call, from any broker."""
        if producer < self.known_end:
            return True
        begun_before = self._reads_begun
        async with self._reading:
            # A read that began after the question answers it, whoever began it; one that failed,
            # or whose asker went away, answers nobody.
            if self._read_answered <= begun_before:
                self._reads_begun += 1
                number = self._reads_begun
                self._learn(
                    await read_counter(self._store, keys.NEXT_PRODUCER, first=FIRST_PRODUCER)
                )
                self._read_answered = number
        return producer < self.known_end

    def _learn(self, end: int) -> None:
        self.known_end = max(self.known_end, end)
