"""Checkpoints in the object store: written, verified, pointed to, kept, trimmed, archived.

The pointer moves only forward, by compare-and-swap, after every object was read back and verified
(C6, C7, rule 14). Three checkpoints are kept; the log is trimmed to the oldest of them, after the
records that go were archived. Whoever meets a pointer at its own position compares hashes: this
is how a replica that diverged is found.
"""

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from lakelog.domain.checkpoint import (
    Manifest,
    PageName,
    assemble,
    decode_manifest,
    digest,
    encode_manifest,
    make_manifest,
)
from lakelog.domain.options import DomainOptions
from lakelog.domain.pages import (
    cut_group_pages,
    cut_pages,
    decode_group_page,
    decode_page,
    encode_group_page,
    encode_page,
)
from lakelog.domain.state import DomainState
from lakelog.meta import keys
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Conflict, Corrupt, NotFound, OutcomeUnknown, Unavailable
from lakelog.objects.port import ObjectStore

PAGES_AT_ONCE = 8


class CheckpointRef(msgspec.Struct, frozen=True, array_like=True):
    """One checkpoint that is kept."""

    position: int
    digest: str
    level: int


class CheckpointPointer(msgspec.Struct, frozen=True):
    """The checkpoints that are kept, the newest first."""

    cluster_id: str
    kept: tuple[CheckpointRef, ...]


class Diverged(Corrupt):
    """Two replicas made different states of the same log: one of them must stop serving (C7)."""


class LogGap(Unavailable):
    """Records between those applied and the log's next one were trimmed: reload (A1)."""


class CheckpointTimer:
    """When a checkpoint is due, by what was applied since the last one.

    All replicas freeze at the same positions, so that their checkpoints compare (C7).
    """

    def __init__(self, options: DomainOptions) -> None:
        self._options = options
        self._frozen: DomainState | None = None
        self._is_due = asyncio.Event()
        self.restart()

    def restart(self) -> None:
        """Count from here: the state is that of a checkpoint."""
        self._records = 0
        self._size_bytes = 0

    def applied(self, state: DomainState, *, size_bytes: int) -> None:
        """Count a record, and freeze the state if its checkpoint is due."""
        self._records += 1
        self._size_bytes += size_bytes
        options = self._options
        if (
            self._records >= options.checkpoint_records
            or self._size_bytes >= options.checkpoint_bytes
        ):
            self.restart()
            self._frozen = state.frozen()
            self._is_due.set()

    async def due(self) -> DomainState:
        """The newest state that was frozen, when there is one."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            frozen, self._frozen = self._frozen, None
            if frozen is not None:
                return frozen


class CheckpointStore:
    """The checkpoints of one domain."""

    def __init__(
        self, store: MetadataStore, objects: ObjectStore, *, domain: int, options: DomainOptions
    ) -> None:
        self._store = store
        self._objects = objects
        self._key = keys.checkpoint(domain)
        self._log = store.log(keys.domain_log(domain))
        self._root = f"checkpoint/v1/domain={domain}"
        self._archive = f"archive/v1/domain={domain}"
        self._options = options
        self._last: Manifest | None = None

    async def pointer(self) -> CheckpointPointer | None:
        """What the pointer says now."""
        found = await self._store.get(self._key)
        return (
            None if found is None else msgspec.msgpack.decode(found.value, type=CheckpointPointer)
        )

    async def load(self) -> DomainState | None:
        """The newest checkpoint that can be read and verified, or None when there is none.

        An object that vanished meanwhile means that the pointer moved: it is read again (C8).
        """
        seen: CheckpointPointer | None = None
        while True:
            pointer = await self.pointer()
            if pointer is None:
                return None
            if pointer == seen:
                raise Corrupt(f"no checkpoint of {self._root} can be read; restore its objects")
            seen = pointer
            for kept in pointer.kept:
                try:
                    return await self._load(kept)
                except (NotFound, Corrupt):
                    continue

    async def save(self, frozen: DomainState) -> None:
        """Write a checkpoint of this state and move the pointer to it, unless it moved beyond."""
        before = self._last
        pointer = await self.pointer()
        newest = pointer.kept[0] if pointer else None
        if newest is not None and newest.position > frozen.position:
            return
        streams, groups = await self._encode(frozen)
        manifest = make_manifest(frozen, streams.names, groups.names)
        data = encode_manifest(manifest)
        if newest is not None and newest.position == frozen.position:
            _compare(newest, digest(data))
            self._remember(manifest, before)
            return
        for page, content in (*streams.fresh, *groups.fresh):
            await self._put_verified(self._page_key(page), content)
        mine = CheckpointRef(frozen.position, digest(data), frozen.level)
        await self._put_verified(self._manifest_key(mine), data)
        await self._point(mine, frozen.cluster_id)
        self._remember(manifest, before)

    def _remember(self, manifest: Manifest, before: Manifest | None) -> None:
        """What the next checkpoint builds on, unless the state was loaded anew meanwhile: it may
        then hold changes that are newer than this checkpoint and not marked as such.
        """
        if self._last is before:
            self._last = manifest

    async def highest_trace(self) -> int:
        """The greatest position that a checkpoint was written at, or that an earlier version noted
        at a start; 0 for none.
        """
        positions = [0]
        async for info in self._objects.list(f"{self._root}/"):
            name = info.key.removeprefix(f"{self._root}/")
            if name.endswith((".manifest", ".milestone")) and name[:20].isdigit():
                positions.append(int(name[:20]))
        return max(positions)

    async def tidy(self, *, now_ms: int) -> None:
        """Archive and trim what every kept checkpoint holds, and delete what none names."""
        pointer = await self.pointer()
        if pointer is None or len(pointer.kept) < self._options.checkpoints_kept:
            return
        oldest = pointer.kept[-1].position
        await self._trim_archived(oldest)
        named = {self._manifest_key(kept) for kept in pointer.kept}
        for kept in pointer.kept:
            manifest = decode_manifest(await self._objects.get(self._manifest_key(kept)))
            named |= {self._page_key(page) for page in (*manifest.pages, *manifest.group_pages)}
        # Rule 20: what is deleted by age is deleted only by a clock that agrees with the store's.
        if abs(await self._objects.clock_skew_ms()) <= self._options.clock_skew_max_ms:
            await self._delete_unnamed(named, now_ms=now_ms)

    async def _load(self, kept: CheckpointRef) -> DomainState:
        data = await self._objects.get(self._manifest_key(kept))
        if digest(data) != kept.digest:
            raise Corrupt(f"the checkpoint at {kept.position} is damaged")
        manifest = decode_manifest(data)
        pages = [decode_page(content) for content in await self._contents(manifest.pages)]
        group_pages = [
            decode_group_page(content) for content in await self._contents(manifest.group_pages)
        ]
        state = assemble(manifest, pages, group_pages)
        self._last = manifest
        return state

    async def _contents(self, names: Sequence[PageName]) -> list[memoryview]:
        """The bytes of these pages, verified."""
        loaded: list[memoryview] = []
        for start in range(0, len(names), PAGES_AT_ONCE):
            some = names[start : start + PAGES_AT_ONCE]
            contents = await asyncio.gather(*(self._objects.get(self._page_key(n)) for n in some))
            for name, content in zip(some, contents, strict=True):
                if digest(content) != name.digest:
                    raise Corrupt(f"checkpoint page {name.digest} is damaged")
                loaded.append(content)
        return loaded

    async def _encode(self, frozen: DomainState) -> tuple["_Pages", "_Pages"]:
        """The pages of streams and of groups.

        They are cut from the frozen state on a thread, so that serving goes on (C9).
        """
        last = self._last
        since = last.position if last else -1
        streams = _Pages(
            {page.bucket: page for page in last.pages} if last else {},
            frozen.streams.buckets(),
            frozen.streams.changed_buckets(since=since),
        )
        groups = _Pages(
            {page.bucket: page for page in last.group_pages} if last else {},
            frozen.groups.buckets(),
            frozen.groups.changed_buckets(since=since),
        )
        loop = asyncio.get_running_loop()
        streams.take(await loop.run_in_executor(None, _encode_pages, frozen, streams.wanted))
        groups.take(await loop.run_in_executor(None, _encode_group_pages, frozen, groups.wanted))
        return streams, groups

    async def _put_verified(self, key: str, content: bytes) -> None:
        await self._objects.put(key, [content])
        if await self._objects.get(key) != content:
            raise Corrupt(f"{key} reads back differently from what was written")

    async def _point(self, mine: CheckpointRef, cluster_id: str) -> None:
        """Move the pointer forward; another broker that was quicker is fine."""
        while True:
            found = await self._store.get(self._key)
            before = (
                msgspec.msgpack.decode(found.value, type=CheckpointPointer).kept if found else ()
            )
            if before and before[0].position >= mine.position:
                if before[0].position == mine.position:
                    _compare(before[0], mine.digest)
                return
            kept = (mine, *before)[: self._options.checkpoints_kept]
            value = msgspec.msgpack.encode(CheckpointPointer(cluster_id, kept))
            try:
                await self._store.put(self._key, value, expect=found.version if found else 0)
            except (Conflict, OutcomeUnknown):
                continue  # read again: it may be ours that landed
            return

    async def _trim_archived(self, oldest: int) -> None:
        page = await self._log.read(after=0)
        while page.records and page.start <= oldest:
            some = page.records[: oldest - page.start + 1]
            end = page.start + len(some)
            key = f"{self._archive}/{page.start:020d}-{end:020d}.log"
            await self._put_verified(key, msgspec.msgpack.encode(some))
            await self._log.trim(before=end)
            page = await self._log.read(after=end - 1)

    async def _delete_unnamed(self, named: set[str], *, now_ms: int) -> None:
        """A grace of an hour lets a slower broker finish reading, or writing, its checkpoint."""
        stale = [
            info.key
            async for info in self._objects.list(f"{self._root}/")
            if info.key not in named and info.modified_ms < now_ms - 3_600_000
        ]
        stale += [
            info.key
            async for info in self._objects.list(f"{self._archive}/")
            if info.modified_ms < now_ms - self._options.archive_ms
        ]
        if stale:
            await self._objects.delete(stale)

    def _manifest_key(self, kept: CheckpointRef) -> str:
        return f"{self._root}/{kept.position:020d}-{kept.digest[:16]}.manifest"

    def _page_key(self, page: PageName) -> str:
        return f"{self._root}/pages/{page.digest}.page"


class _Pages:
    """The pages of one kind for a checkpoint: those of the last one are named again."""

    def __init__(
        self, known: dict[int, PageName], present: Sequence[int], changed: Collection[int]
    ) -> None:
        self._known = known
        self._present = present
        self.wanted = [bucket for bucket in present if bucket in changed or bucket not in known]
        self.names: list[PageName] = []
        self.fresh: list[tuple[PageName, bytes]] = []

    def take(self, made: list[tuple[PageName, bytes]]) -> None:
        """Name all pages, and keep the bytes of those that the last checkpoint does not have."""
        by_bucket = {name.bucket: name for name, _ in made}
        self.names = [by_bucket.get(bucket) or self._known[bucket] for bucket in self._present]
        before = {page.digest for page in self._known.values()}
        self.fresh = [(name, content) for name, content in made if name.digest not in before]


def _compare(pointed: CheckpointRef, mine: str) -> None:
    if pointed.digest != mine:
        raise Diverged(
            f"the state at position {pointed.position} has digest {mine[:16]},"
            f" another broker's has {pointed.digest[:16]}"
        )


def _encode_pages(frozen: DomainState, wanted: list[int]) -> list[tuple[PageName, bytes]]:
    made = []
    for page in cut_pages(frozen, wanted):
        content = encode_page(page)
        made.append((PageName(page.bucket, digest(content), len(content)), content))
    return made


def _encode_group_pages(frozen: DomainState, wanted: list[int]) -> list[tuple[PageName, bytes]]:
    made = []
    for page in cut_group_pages(frozen.groups, set(wanted)):
        content = encode_group_page(page)
        made.append((PageName(page.bucket, digest(content), len(content)), content))
    return made
