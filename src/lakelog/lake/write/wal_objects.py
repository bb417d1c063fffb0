"""Batches become WAL objects in the store, where nobody sees them before they are committed.

Rules:

- Batches of one stream keep their order: within an object, and from one object to the next.
- An id is fresh, and its time is the writer's clock, moved ahead of the broker's Horizon if that
  clock is slow (rule 18). Objects that are never committed go with the sweep of orphans.
- A put is repeated under its own name until it is durable or given up.
- Memory is bounded: what is gathered for all domains, and how many objects are written at once.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lakelog.clock import Clock, Entropy, Tasks
from lakelog.domain.commit_event import Commit
from lakelog.domain.events import Kind, decode_event, encode_event
from lakelog.index.messages import WriteStore
from lakelog.lake.write.commit_client import PlacedObject
from lakelog.lake.write.record_batches import StreamBatch
from lakelog.log.buffer import ObjectBuffer, seal
from lakelog.log.options import LogOptions
from lakelog.model.failures import Failure, OutcomeUnknown, Unavailable
from lakelog.model.ids import DomainId
from lakelog.objects.port import ObjectStore
from lakelog.records.batch_rows import rows_of
from lakelog.wal.layout import TOKEN_BYTES, make_wal_id, object_key


@dataclass(frozen=True, slots=True)
class ObjectOptions:
    """How batches are gathered and put."""

    log: LogOptions = field(default_factory=LogOptions)
    """Of these the limits of an object, and how a put is repeated."""

    gathered_bytes_max: int = 32 << 20
    """What waits for company in all domains together; beyond it the largest object is closed."""

    puts_max: int = 3
    """Objects that are written at the same time; beyond it whoever brings batches waits."""


class ObjectWriter:
    """Gathers batches by domain and puts them, from one loop."""

    def __init__(
        self,
        objects: ObjectStore,
        place: WriteStore,
        clock: Clock,
        entropy: Entropy,
        options: ObjectOptions | None = None,
    ) -> None:
        self._objects = objects
        self._zone = place.zone
        self._clock = clock
        self._entropy = entropy
        self._options = options or ObjectOptions()
        self._ahead_ms = max(0, place.id_time_ms_min - clock.now_ms())
        self._open: dict[int, ObjectBuffer] = {}
        self._room = asyncio.Semaphore(self._options.puts_max)
        self._tasks = Tasks()
        self._begun: list[PlacedObject] = []
        self._failure: Failure | None = None

    async def add(self, batches: Iterable[StreamBatch]) -> None:
        """Take in these batches; raises what became of an earlier put."""
        for domain, stream, batch in batches:
            gathered = self._open.setdefault(domain, ObjectBuffer())
            gathered.add(rows_of([stream], [batch]))
            if gathered.is_full(self._options.log):
                await self._close(domain)
        while sum(one.size_bytes for one in self._open.values()) > self._options.gathered_bytes_max:
            await self._close(max(self._open, key=lambda domain: self._open[domain].size_bytes))

    async def finish(self) -> tuple[PlacedObject, ...]:
        """Put what is left and wait until all objects are durable, in the order they were closed.

        Raises `Unavailable` and `OutcomeUnknown` when the store took one of them for too long.
        """
        for domain in sorted(self._open):
            await self._close(domain)
        for _ in range(self._options.puts_max):
            await self._room.acquire()
        await self._tasks.close()
        if self._failure is not None:
            raise self._failure
        return tuple(self._begun)

    async def discard(self) -> None:
        """Delete all that was put, as far as that can be done: nothing of it will be committed."""
        self._open.clear()
        await self._tasks.close()
        await delete_placed(self._objects, self._begun)

    async def _close(self, domain: int) -> None:
        await self._room.acquire()
        if self._failure is not None:
            self._room.release()
            raise self._failure
        gathered = self._open.pop(domain)
        now_ms = self._clock.now_ms() + self._ahead_ms
        sealed = seal(
            gathered,
            wal_id=make_wal_id(now_ms, self._entropy.token(TOKEN_BYTES)),
            domain=DomainId(domain),
            zone=self._zone,
            created_ms=now_ms,
        )
        _, commit = encode_event(sealed.commit)
        self._begun.append(PlacedObject(domain, commit))
        key = object_key(self._zone, DomainId(domain), sealed.commit.wal_id)
        self._tasks.spawn(self._put(key, (sealed.data,)), name="put WAL object")

    async def _put(self, key: str, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        log = self._options.log
        give_up_s = self._clock.monotonic_s() + log.put_give_up_ms / 1000
        failures = 0
        try:
            while True:
                try:
                    await self._objects.put(key, parts)
                except (Unavailable, OutcomeUnknown) as error:
                    if self._clock.monotonic_s() > give_up_s:
                        self._failure = error
                        return
                else:
                    return
                failures += 1
                await asyncio.sleep(log.put_backoff.grown_s(failures))
        except Failure as error:  # the store refuses: raised where batches are brought
            self._failure = error
        finally:
            self._room.release()


async def delete_placed(objects: ObjectStore, placed: Sequence[PlacedObject]) -> None:
    """Delete objects that no commit names or ever will; what fails is left to the sweep."""
    if not placed:
        return
    try:
        await objects.delete([_object_key(one) for one in placed])
    except Failure:
        return  # an orphan costs room for a while, and nothing else


def _object_key(placed: PlacedObject) -> str:
    commit = decode_event(Kind.COMMIT, memoryview(placed.commit))
    assert isinstance(commit, Commit), commit
    return object_key(commit.zone, DomainId(placed.domain), commit.wal_id)
