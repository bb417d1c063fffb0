"""Task records in the metadata store: read many at once, put one by its version.

A value that cannot be understood belongs to a newer version or is damaged. It is reported, its
stream is left alone, and the others go on.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lakelog.meta.port import KeyValue, MetadataStore
from lakelog.model.failures import Corrupt, Refused
from lakelog.pipeline.options import reading, together, writing
from lakelog.pipeline.saga.task_record import (
    TASKS,
    TaskRecord,
    decode_record,
    encode_record,
    task_key,
)

GETS_MIN: Final = 16
"""So few records are read one by one, however many there are."""

GETS_PER_RANGE: Final = 8
"""One read of all records costs about as much for each as a read of its own would for so many."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record and the version of its key."""

    record: TaskRecord
    version: int


@dataclass(frozen=True, slots=True)
class StoredRecords:
    """Records by stream; `broken` are keys whose value says nothing, with the reason."""

    found: Mapping[int, StoredRecord] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)

    @property
    def broken_streams(self) -> frozenset[int]:
        """The streams whose records say nothing."""
        names = (key.removeprefix(TASKS) for key in self.broken)
        return frozenset(int(name) for name in names if name.isdecimal())


class RecordStore:
    """All task records of a cluster."""

    def __init__(self, meta: MetadataStore, *, puts_max: int, limit_s: float) -> None:
        self._meta = meta
        self._places = asyncio.Semaphore(puts_max)
        self._limit_s = limit_s
        self._known = 0
        """How many records there were when all were read last."""

    async def load_all(self) -> StoredRecords:
        """Every record there is, read at one moment."""
        values = await reading(self._meta.range(TASKS), limit_s=self._limit_s)
        self._known = len(values)
        return _decoded(values)

    async def load(self, streams: Sequence[int]) -> StoredRecords:
        """The records of these streams, each read after this was called."""
        if len(streams) > max(GETS_MIN, self._known // GETS_PER_RANGE):
            everything = await self.load_all()
            asked = set(streams)
            found = {
                stream: stored for stream, stored in everything.found.items() if stream in asked
            }
            return StoredRecords(found, everything.broken)
        gets = (reading(self._get(stream), limit_s=self._limit_s) for stream in streams)
        values = await together(gets)
        return _decoded([value for value in values if value is not None])

    async def put(self, record: TaskRecord, *, version: int) -> int:
        """Write the record in the place of that version (0: of nothing); returns its own."""
        value = encode_record(record)
        async with self._places:
            change = self._meta.put(task_key(record.stream), value, expect=version)
            return await writing(change, limit_s=self._limit_s)

    async def delete(self, stream: int, *, version: int) -> None:
        """Forget the record of that version."""
        async with self._places:
            change = self._meta.put(task_key(stream), None, expect=version)
            await writing(change, limit_s=self._limit_s)

    async def _get(self, stream: int) -> KeyValue | None:
        async with self._places:
            return await self._meta.get(task_key(stream))


def _decoded(values: Sequence[KeyValue]) -> StoredRecords:
    found: dict[int, StoredRecord] = {}
    broken: dict[str, str] = {}
    for value in values:
        try:
            record = decode_record(value.value)
        except (Corrupt, Refused) as error:
            broken[value.key] = str(error)
            continue
        if task_key(record.stream) == value.key:
            found[record.stream] = StoredRecord(record, value.version)
        else:
            broken[value.key] = f"holds the record of stream {record.stream}"
    return StoredRecords(found, broken)
