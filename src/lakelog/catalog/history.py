"""The snapshots that tables had: kept in the metadata store after the tables let go of them.

Three kinds of keys for each topic that has a table: one of a few bytes that says that there is a
history, the head, and sealed pages (`lakelog.catalog.snapshot_page`). Rules:

- What a commit expires is in the history before the commit is sent. So whoever reads a table's own
  snapshots first and its history after that misses none. A crash in between, or a commit that is
  refused, leaves a repeat, which is harmless.
- A commit reads and writes the head alone, whatever the length of the history.
- A page is sealed before the head that no longer has its facts is put. Page n is only ever made of
  a head whose pages end at n, and overwritten only while that head is there.
- A history that cannot be understood stops no commit: it is said aloud, and what expires is
  forgotten.
- Topic ids never come back, so the history of a topic that is gone is deleted without ceremony.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from lakelog.catalog.port import SnapshotView
from lakelog.catalog.snapshot_page import (
    FORMAT,
    Head,
    decode_head,
    decode_page,
    encode_head,
    facts_of,
    remembered,
    without,
)
from lakelog.clock import Clock
from lakelog.meta import keys
from lakelog.meta.port import VALUE_BYTES_MAX, KeyValue, MetadataStore
from lakelog.model.failures import Conflict, Corrupt, OutcomeUnknown, Refused, Unavailable
from lakelog.telemetry import event

ATTEMPTS: Final = 5
PAGES_PER_TRIM: Final = 100
"""The most pages that one trim of a table deletes; the next goes on."""

Change: TypeAlias = Callable[[Head], tuple[bytes | None, Head]]
"""From a head to the page that has to be sealed first, if any, and the head after it."""

_log = logging.getLogger("lakelog.catalog")


class SnapshotHistory:
    """The histories of all tables of a cluster."""

    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def remember(self, topic: str, topic_id: str, gone: Sequence[SnapshotView]) -> None:
        """Put down snapshots that a commit is about to expire; `Unavailable` when that failed."""
        facts = facts_of(gone, expired_ms=self._clock.now_ms())
        if facts:
            await self._keep(topic, topic_id, lambda head: remembered(head, facts))

    async def show_live(self, topic: str, topic_id: str, live: Sequence[SnapshotView]) -> None:
        """Put down which snapshots a table has, for those who cannot ask its catalog."""
        facts = tuple(facts_of(live))
        await self._keep(topic, topic_id, lambda head: (None, replace(head, live=facts)))

    async def _keep(self, topic: str, topic_id: str, change: Change) -> None:
        try:
            await self._changed(topic, topic_id, change)
        except (Corrupt, Refused) as error:
            event(_log, "history_not_kept", logging.WARNING, topic=topic, reason=error)

    async def head(self, topic_id: str) -> Head:
        """The newest part of a history; an empty one where there is none."""
        found = await self._store.get(keys.snapshot_head(topic_id))
        return Head() if found is None else _head_in(found)

    async def page(self, topic_id: str, number: int) -> bytes | None:
        """A sealed page as it is; None when it was deleted."""
        found = await self._store.get(keys.snapshot_page(topic_id, number))
        return None if found is None else found.value

    async def topic_ids(self) -> list[str]:
        """The ids of all topics that have a history, those of topics that are gone too."""
        found = await self._store.range(keys.SNAPSHOTS)
        return [one.key.removeprefix(keys.SNAPSHOTS) for one in found]

    async def trim(self, topic_id: str, *, kept_from_ms: int) -> int:
        """Forget what expired before that time; returns how many pages were deleted.

        Somebody who changes the head at the same time wins: the next trim finds the same again.
        """
        found = await self._store.get(keys.snapshot_head(topic_id))
        if found is None:
            return 0
        head = _head_in(found)
        first, deleted = head.first, 0
        while first < head.end and deleted < PAGES_PER_TRIM:
            page = await self.page(topic_id, first)
            if page is not None:
                expired_ms = _expired_last(keys.snapshot_page(topic_id, first), page)
                if expired_ms >= kept_from_ms:
                    break
                await self._store.put(keys.snapshot_page(topic_id, first), None)
                deleted += 1
            first += 1
        after = replace(head, first=first, page=without(head.page, before_ms=kept_from_ms))
        if after != head:
            try:
                await self._put_head(topic_id, after, expect=found.version)
            except Conflict:
                return deleted
        return deleted

    async def forget(self, topic_id: str) -> None:
        """Delete the whole history of a topic that is gone for good; may be repeated."""
        for found in await self._store.range(keys.snapshot_pages(topic_id)):
            await self._store.put(found.key, None)
        await self._store.put(keys.snapshots(topic_id), None)

    async def _changed(self, topic: str, topic_id: str, change: Change) -> None:
        """Change the head by compare-and-swap; after a doubt, what is there now decides."""
        for _ in range(ATTEMPTS):
            found = await self._store.get(keys.snapshot_head(topic_id))
            head = Head() if found is None else _head_in(found)
            sealed, after = change(head)
            if after == head:
                return
            version = 0 if found is None else found.version
            try:
                if found is None:
                    said = json.dumps({"format": FORMAT, "topic": topic}, separators=(",", ":"))
                    await self._store.put(keys.snapshots(topic_id), said.encode())
                if sealed is not None:
                    await self._seal(topic_id, head.end, sealed, head_version=version)
                await self._put_head(topic_id, after, expect=version)
            except (Conflict, OutcomeUnknown):
                continue
            return
        raise Unavailable(f"{topic}: the history of its snapshots changes too fast, or is unsure")

    async def _seal(self, topic_id: str, number: int, page: bytes, *, head_version: int) -> None:
        """Put a page; `Conflict` when the head that it was made of has given way to another."""
        key = keys.snapshot_page(topic_id, number)
        found = await self._store.get(key)
        if found is not None and found.value == page:
            return
        head = await self._store.get(keys.snapshot_head(topic_id))
        if head is None or head.version != head_version:
            raise Conflict(f"{key}: was sealed by another")
        await self._store.put(key, page, expect=0 if found is None else found.version)

    async def _put_head(self, topic_id: str, head: Head, *, expect: int) -> None:
        value = encode_head(head)
        while len(value) > VALUE_BYTES_MAX and head.live:
            head = replace(head, live=head.live[1:])
            value = encode_head(head)
        if len(value) > VALUE_BYTES_MAX:
            raise Refused(f"{len(value)} bytes are more than the metadata store takes")
        await self._store.put(keys.snapshot_head(topic_id), value, expect=expect)


def _head_in(found: KeyValue) -> Head:
    try:
        return decode_head(found.value)
    except Corrupt as error:
        raise Corrupt(f"{found.key}: {error}") from error


def _expired_last(key: str, page: bytes) -> int:
    try:
        return max((one.expired_ms for one in decode_page(page).facts), default=0)
    except Corrupt as error:
        raise Corrupt(f"{key}: {error}") from error
