"""The tables of topics as people ask for them: how far behind the log, how large, how old.

`TableReads` reads what the tables of the built-in catalog say of themselves, without PyIceberg: a
table's metadata.json is kept until its pointer names another one, and the tables of another catalog
are not known here. `TableList` puts that beside what the log holds, which is proved current. A
table that cannot be read says why, and the others are shown all the same.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from lakelog.catalog.definition import Locations, parse_vector
from lakelog.catalog.pointers import Pointers, TablePointer
from lakelog.catalog.port import OFFSETS_PROPERTY, SnapshotView, TableName
from lakelog.clock import Clock
from lakelog.index.gather import NO_TIME, oldest_wal_ms
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Corrupt, Failure, NotFound
from lakelog.objects.port import ObjectStore
from lakelog.streams.table import NONE
from lakelog.topics.configs import Format
from lakelog.topics.topic import Topic

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

ANSWER_S: Final = 10.0
STREAMS_PER_SLICE: Final = 1_000
READS_AT_ONCE: Final = 16


class MetadataSnapshot(msgspec.Struct, frozen=True, rename="kebab"):
    """What is read of a snapshot."""

    snapshot_id: int
    timestamp_ms: int
    summary: dict[str, str] = {}
    sequence_number: int = 0

    def view(self) -> SnapshotView:
        """The snapshot as catalogs show it; `Corrupt` when its vector is none."""
        text = self.summary.get(OFFSETS_PROPERTY)
        return SnapshotView(
            snapshot_id=self.snapshot_id,
            sequence_number=self.sequence_number,
            timestamp_ms=self.timestamp_ms,
            operation=self.summary.get("operation", ""),
            vector=None if text is None else parse_vector(text),
        )


class MetadataFile(msgspec.Struct, frozen=True, rename="kebab"):
    """The part of a metadata.json that is read."""

    table_uuid: str
    location: str
    current_snapshot_id: int | None = None
    snapshots: list[MetadataSnapshot] = []
    properties: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at one metadata.json, or why it cannot be read; nothing of one that is not there."""

    metadata_location: str | None = None
    metadata: MetadataFile | None = None
    vector: Mapping[int, int] | None = None
    error: str | None = None

    def current(self) -> MetadataSnapshot | None:
        """The snapshot that readers see."""
        if self.metadata is None:
            return None
        wanted = self.metadata.current_snapshot_id
        snapshots = self.metadata.snapshots
        found = (snapshot for snapshot in snapshots if snapshot.snapshot_id == wanted)
        return next(found, None)


class TableReads:
    """The tables of one namespace."""

    def __init__(
        self, store: MetadataStore, objects: ObjectStore, *, namespace: str, is_builtin: bool
    ) -> None:
        self.namespace = namespace
        self.is_builtin = is_builtin
        self._pointers = Pointers(store)
        self._objects = objects
        self._locations = Locations.below(objects.url)
        self._known: dict[str, TableState] = {}
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

    async def all(self) -> dict[str, TableState]:
        """Every table there is, by its topic's name."""
        if not self.is_builtin:
            return {}
        pointers = await self._pointers.tables(self.namespace)
        tables = await asyncio.gather(*(self._read(pointer) for pointer in pointers))
        names = [pointer.name.table for pointer in pointers]
        self._known = dict(zip(names, tables, strict=True))
        return dict(self._known)

    async def of(self, topic: str) -> TableState:
        """The table of a topic as it is now."""
        if not self.is_builtin:
            return TableState()
        pointer = await self._pointers.get(TableName(self.namespace, topic))
        return TableState() if pointer is None else await self._read(pointer)

    async def _read(self, pointer: TablePointer) -> TableState:
        place = pointer.metadata_location
        known = self._known.get(pointer.name.table)
        if known is not None and known.metadata_location == place and known.error is None:
            return known
        async with self._reads:
            try:
                content = await self._objects.get(self._locations.key(place))
                return _parsed(place, content)
            except Failure as reason:
                return TableState(place, error=str(reason))


def _parsed(place: str, content: memoryview) -> TableState:
    try:
        metadata = msgspec.json.decode(content, type=MetadataFile)
    except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
        raise Corrupt(f"{place} is not the metadata of a table: {reason}") from reason
    vector = parse_vector(metadata.properties.get(OFFSETS_PROPERTY, "{}"))
    return TableState(place, metadata, vector)


@dataclass(frozen=True, slots=True)
class _Lag:
    """How far a partition's table is behind its log."""

    log_start: int
    head: int
    oldest_ms: int
    """When the oldest WAL object with its records was closed; `NO_TIME` when there is none."""

    def rows_behind(self, table_end: int | None) -> int:
        """Offsets that the log has and the table has not."""
        return max(0, self.head - max(self.log_start, table_end or 0))


class TableList:
    """The tables of one namespace beside the topics that they are of."""

    def __init__(self, broker: "Broker", reads: TableReads, clock: Clock) -> None:
        self._broker = broker
        self._reads = reads
        self._clock = clock

    async def listed(self) -> list[dict[str, object]]:
        """A row for each topic that has a table, by name."""
        topics = [topic for topic in await self._broker.topics.all() if _has_table(topic)]
        tables = await self._reads.all()
        lags = await self._lags(topics)
        now_ms = self._clock.now_ms()
        return [
            self._row(topic, tables.get(topic.name, TableState()), lags[topic.name], now_ms=now_ms)
            for topic in topics
        ]

    async def described(self, name: str) -> dict[str, object]:
        """A topic's table with its partitions and snapshots; raises `NotFound`."""
        topic = await self._broker.topics.find(name)
        if topic is None:
            raise NotFound(f"there is no topic {name!r}")
        if not _has_table(topic):
            raise NotFound(f"{name} has no table: its lakelog.format is not parquet")
        table = await self._reads.of(name)
        lags = (await self._lags([topic]))[name]
        now_ms = self._clock.now_ms()
        metadata = table.metadata
        return {
            **self._row(topic, table, lags, now_ms=now_ms),
            "uuid": None if metadata is None else metadata.table_uuid,
            "location": None if metadata is None else metadata.location,
            "partitions": [
                self._partition(partition, lag, table, now_ms=now_ms)
                for partition, lag in enumerate(lags)
            ],
            "history": []
            if metadata is None
            else [_shown(snapshot) for snapshot in metadata.snapshots],
        }

    def _row(
        self, topic: Topic, table: TableState, lags: Sequence[_Lag], *, now_ms: int
    ) -> dict[str, object]:
        oldest_ms = min((lag.oldest_ms for lag in lags), default=NO_TIME)
        current = table.current()
        summary = {} if current is None else current.summary
        is_known = self._reads.is_builtin and table.error is None
        vector = table.vector or {}
        behind = sum(lag.rows_behind(vector.get(number)) for number, lag in enumerate(lags))
        return {
            "topic": topic.name,
            "table": f"{self._reads.namespace}.{topic.name}",
            "partition_count": len(lags),
            "rows_behind": behind if is_known else None,
            "seconds_behind": _age_s(oldest_ms, now_ms),
            "snapshots": None if table.metadata is None else len(table.metadata.snapshots),
            "snapshot_id": None if current is None else current.snapshot_id,
            "files": _number(summary.get("total-data-files")),
            "rows": _number(summary.get("total-records")),
            "bytes": _number(summary.get("total-files-size")),
            "metadata_location": table.metadata_location,
            "error": table.error,
        }

    def _partition(
        self, partition: int, lag: _Lag, table: TableState, *, now_ms: int
    ) -> dict[str, object]:
        table_end = (table.vector or {}).get(partition)
        is_known = self._reads.is_builtin and table.error is None
        return {
            "partition": partition,
            "log_start": lag.log_start,
            "head": lag.head,
            "table_end": table_end,
            "rows_behind": lag.rows_behind(table_end) if is_known else None,
            "seconds_behind": _age_s(lag.oldest_ms, now_ms),
        }

    async def _lags(self, topics: Sequence[Topic]) -> dict[str, list[_Lag]]:
        log = self._broker.log
        arrived_s = self._clock.monotonic_s()
        domains = range(len(log.replicas))
        await log.prove_domains(domains, arrived_s=arrived_s, deadline_s=arrived_s + ANSWER_S)
        streams = [stream for topic in topics for stream in topic.streams()]
        found: dict[int, _Lag] = {}
        for start in range(0, len(streams), STREAMS_PER_SLICE):
            by_domain: dict[int, list[int]] = {}
            for stream in streams[start : start + STREAMS_PER_SLICE]:
                by_domain.setdefault(log.domain_of(stream), []).append(stream)
            for domain, ids in by_domain.items():
                found |= self._lags_in(domain, ids)
                await asyncio.sleep(0)
        gone = _Lag(0, 0, NO_TIME)  # a topic that is being deleted has no streams any more
        return {
            topic.name: [found.get(stream, gone) for stream in topic.streams()] for topic in topics
        }

    def _lags_in(self, domain: int, streams: Sequence[int]) -> dict[int, _Lag]:
        state = self._broker.log.state(domain)
        ids = np.array(streams, dtype=np.int64)
        rows = state.streams.rows(ids)
        there = rows != NONE
        columns = state.streams.columns
        facts = zip(
            ids[there].tolist(),
            columns["log_start"][rows[there]].tolist(),
            columns["head"][rows[there]].tolist(),
            oldest_wal_ms(state, ids[there]).tolist(),
            strict=True,
        )
        return {stream: _Lag(log_start, head, oldest) for stream, log_start, head, oldest in facts}


def _has_table(topic: Topic) -> bool:
    return topic.settings.format is Format.PARQUET


def _age_s(oldest_ms: int, now_ms: int) -> float:
    return 0.0 if oldest_ms == NO_TIME else max(0, now_ms - oldest_ms) / 1000


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _shown(snapshot: MetadataSnapshot) -> dict[str, object]:
    summary = snapshot.summary
    return {
        "snapshot_id": snapshot.snapshot_id,
        "sequence_number": snapshot.sequence_number,
        "timestamp_ms": snapshot.timestamp_ms,
        "operation": summary.get("operation"),
        "rows": _number(summary.get("total-records")),
        "files": _number(summary.get("total-data-files")),
        "added_rows": _number(summary.get("added-records")),
        "deleted_rows": _number(summary.get("deleted-records")),
    }
