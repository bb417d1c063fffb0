"""Ports that fail on order, for tests of rounds."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec
from tests.log.tables import accepted
from tests.memory_cluster import batch
from tests.pipeline.pipeline_place import Place
from tests.records.table_cases import Row, rows_of

from lakelog.log.values import StreamRead
from lakelog.model.failures import Failure, Unavailable
from lakelog.model.ids import DomainId
from lakelog.pipeline.files.file_task import FileAnswer, FileTask
from lakelog.pipeline.ports import Effects, TaskEngine
from lakelog.records.acceptance import AcceptedBatch
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.header import (
    CRC_OFFSET,
    BatchError,
    batch_crc,
    parse_header,
    split_batches,
)
from lakelog.streams.objects import WalName
from lakelog.wal.layout import object_key

T = TypeVar("T")


class Seeing(Effects):
    """Notes every effect, and calls a test before the next one of a name."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}

    async def do(self, name: str, action: Callable[[], Awaitable[T]]) -> T:
        self.seen.append(name)
        hook = self.before.pop(name, None)
        if hook is not None:
            await hook()
        return await action()


class Down:
    """A port of which the named operations (all, when none is named) fail until it is `up`."""

    def __init__(self, inner: Any, *names: str, failure: Failure | None = None) -> None:
        self.is_up = False
        self.asked = 0
        self._inner = inner
        self._names = names
        self._failure = failure or Unavailable("down")

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if self.is_up or not callable(found) or (self._names and name not in self._names):
            return found

        async def fail(*_: Any, **__: Any) -> None:
            self.asked += 1
            raise self._failure

        return fail


class Gate:
    """An engine that lets tasks of one topic wait until it is opened."""

    def __init__(self, inner: TaskEngine, topic: str) -> None:
        self.opened = asyncio.Event()
        self.reached = asyncio.Event()
        self.runs: list[int] = []
        self._inner = inner
        self._topic = topic

    @property
    def slots(self) -> int:
        return self._inner.slots

    async def run(self, tasks: Sequence[FileTask]) -> Sequence[FileAnswer]:
        self.runs.append(len(tasks))
        if any(self._topic in task.key for task in tasks):
            self.reached.set()
            await self.opened.wait()
        return await self._inner.run(tasks)


def wal_key(place: Place, stream: int, number: int = 0) -> str:
    """The WAL object of one of the stream's entries."""
    name = place.node.log.pieces(stream)[number].name
    assert isinstance(name, WalName)
    return object_key(name.zone, DomainId(0), name.wal_id)


async def damage(place: Place, stream: int, number: int = 0) -> str:
    """Flip a bit of an entry; returns the object's key."""
    piece = place.node.log.pieces(stream)[number]
    key = wal_key(place, stream, number)
    content = bytearray(await place.objects.get(key))
    content[piece.byte_start + piece.byte_length - 1] ^= 1
    await place.objects.put(key, [content])
    return key


def undecodable() -> AcceptedBatch:
    """A batch whose checksum is right and whose records are nonsense."""
    good = accepted(memoryview(build_batch([Record(None, b"a", 5)] * 3, BatchOptions())))
    broken = bytearray(good.data)
    broken[61] = 0x7F  # the first record's length
    broken[CRC_OFFSET : CRC_OFFSET + 4] = batch_crc(memoryview(broken)).to_bytes(4, "big")
    return msgspec.structs.replace(good, data=memoryview(bytes(broken)))


async def raw(place: Place, stream: int, start: int, end: int) -> bytes:
    """The bytes of a stream's batches in [start, end)."""
    parts = []
    while start < end:
        wanted = [StreamRead(stream, start, 1 << 20)]
        soon = place.cluster.soon()
        (got,) = await place.node.log.read(wanted, bytes_max=1 << 20, deadline_s=soon)
        for one in split_batches(memoryview(b"".join(bytes(part) for part in got.parts))):
            header = parse_header(one)
            start = header.base_offset + header.last_offset_delta + 1
            if header.base_offset < end:
                parts.append(bytes(one))
    return b"".join(parts)


UNREAD_MS = -1
"""The timestamp of what stands for a batch that cannot be read."""


async def rows_or_bytes(place: Place, stream: int) -> list[Row]:
    """What a consumer gets of a stream; a batch that nobody can read is a row with its bytes."""
    facts = place.node.log.facts(stream)
    assert facts is not None
    found: list[Row] = []
    content = await raw(place, stream, facts.log_start, facts.head)
    for one in split_batches(memoryview(content)):
        base = parse_header(one).base_offset
        try:
            found += rows_of([(base, one)])
        except BatchError:
            found.append(Row(base, UNREAD_MS, False, None, bytes(one), []))
    return [row for row in found if row.offset >= facts.log_start]


async def send(place: Place, stream: int, pattern: str) -> None:
    """One entry of good (g) and undecodable (x) batches, of three records each."""
    batches = [
        undecodable() if letter == "x" else batch(b"a%d" % at, b"b%d" % at, b"c%d" % at)
        for at, letter in enumerate(pattern)
    ]
    await place.node.log.append([stream] * len(batches), batches, deadline_s=place.cluster.soon())
