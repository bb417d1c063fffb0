"""How current a copy of keys is, and how changes of them are announced.

A revision key moves with every change; the copy is as current as the revision it was read at. One
look at the revision serves everyone who asked before it began. Topics have one such copy, the
configs of groups another.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Final, Generic, Protocol, TypeVar

from lakelog.clock import Clock
from lakelog.meta import keys
from lakelog.meta.port import KeyValue, MetadataStore
from lakelog.model.failures import Conflict, OutcomeUnknown, Unavailable

RELOAD_S: Final = 30.0
"""Everything is read again this often, should an author have died before announcing."""

ATTEMPTS_MAX: Final = 100

ReadingT = TypeVar("ReadingT")


class Copy(Protocol[ReadingT]):
    """A copy of all keys with one prefix."""

    def reading(self) -> AbstractContextManager[ReadingT]:
        """Opened before all keys are read, so that what is learnt meanwhile is not lost."""

    def install(self, reading: ReadingT, found: Iterable[KeyValue]) -> None:
        """These are all the keys there were."""


class Currency(Generic[ReadingT]):
    """Keeps a copy current: of the topics, unless other keys are named."""

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        known: Copy[ReadingT],
        *,
        prefix: str = keys.TOPICS,
        revision: str = keys.TOPICS_REVISION,
    ) -> None:
        self._store = store
        self._clock = clock
        self._known = known
        self._prefix = prefix
        self._revision_key = revision
        self._revision = -1  # of the revision key; -1 until the first full reading
        self._loaded_s = 0.0
        self._asked = 0
        self._proved = 0
        self._failed = 0
        self._reading = asyncio.Lock()
        self._announcing = asyncio.Lock()

    async def prove(self) -> None:
        """After it, every change that was announced before the call is known."""
        self._asked += 1
        ticket = self._asked
        async with self._reading:
            if self._proved >= ticket:
                return  # another's look began after we asked
            if self._failed >= ticket:
                raise Unavailable(f"{self._prefix} cannot be read")  # so it did for another
            asked = self._asked
            try:
                await self._look()
            except Unavailable:
                self._failed = asked
                raise
            self._proved = asked

    async def announce(self) -> None:
        """Move the revision; if nobody else moved it since our reading, ours stays current."""
        async with self._announcing:
            expected = self._revision if self._revision >= 0 else None
            for _ in range(ATTEMPTS_MAX):
                try:
                    revision = await self._store.put(self._revision_key, b"1", expect=expected)
                except (Conflict, OutcomeUnknown):
                    expected = None  # moving it once more does no harm
                    continue
                if expected is not None:
                    self._revision = revision
                return
        raise Unavailable(f"{self._revision_key} cannot be moved")

    async def _look(self) -> None:
        """Read the revision and, if it moved or it is time, the keys."""
        found = await self._store.get(self._revision_key)
        revision = 0 if found is None else found.version
        now_s = self._clock.monotonic_s()
        if revision == self._revision and now_s - self._loaded_s < RELOAD_S:
            return
        with self._known.reading() as reading:
            found_keys = await self._store.range(self._prefix)
            self._known.install(reading, found_keys)
        self._revision = revision
        self._loaded_s = now_s
