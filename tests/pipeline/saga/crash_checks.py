"""What must be true of log, tables, records and objects once pipelines have come to rest."""

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from tests.pipeline.pipeline_faults import UNREAD_MS, rows_or_bytes
from tests.pipeline.pipeline_place import NAMESPACE, Place
from tests.records.table_cases import Row

from lakelog.catalog.port import TableName
from lakelog.pipeline.saga.task_record import TASKS, decode_record, is_open, parse_output_key
from lakelog.streams.objects import FileKind, FileName


@dataclass
class Content:
    """What was ever written to the streams of the topics, and how far they may be trimmed."""

    rows: dict[int, list[Row]]
    starts: dict[int, set[int]] = field(default_factory=dict)
    is_dropped: bool = False
    is_cleaned: bool = False
    """Of each key only the latest record stays."""

    @classmethod
    async def of(cls, place: Place, *, is_cleaned: bool = False) -> "Content":
        streams = [stream for topic in place.topics for stream in topic.streams]
        rows = {stream: await rows_or_bytes(place, stream) for stream in streams}
        return cls(rows, is_cleaned=is_cleaned)

    def table_name(self, topic: str) -> TableName:
        return TableName(NAMESPACE, topic)

    def may_trim(self, stream: int, offset: int) -> None:
        self.starts.setdefault(stream, {0}).add(offset)

    def dropped(self) -> None:
        self.is_dropped = True

    def kept(self, place: Place, stream: int) -> list[Row]:
        """What a consumer may read of a stream now."""
        facts = place.node.log.facts(stream)
        assert facts is not None, stream
        start = facts.log_start
        assert start in self.starts.get(stream, {0}), (start, self.starts)
        left = self.rows[stream]
        if self.is_cleaned:
            left = sorted({row.key: row for row in left}.values(), key=lambda row: row.offset)
        return [row for row in left if row.offset >= start]


async def flaws(place: Place, content: Content) -> list[str]:
    """Everything that is wrong."""
    found = await _record_flaws(place)
    for topic in place.topics:
        for partition, stream in enumerate(topic.streams):
            if not content.is_dropped:
                found += await _stream_flaws(place, content, stream)
                found += await _table_flaws(place, content, topic.name, partition)
    return found + await _missing(place, content)


async def _record_flaws(place: Place) -> list[str]:
    """V5, V6: every task is at its end, and streams that are gone have none."""
    found = []
    for value in await place.meta.range(TASKS):
        record = decode_record(value.value)
        if is_open(record):
            found.append(f"V6: {record}")
        if place.node.log.facts(record.stream) is None:
            found.append(f"V6: the stream is gone: {record}")
    return found


async def _stream_flaws(place: Place, content: Content, stream: int) -> list[str]:
    """C1: it reads as it was written; C4: nothing is left in WAL objects."""
    found = []
    if await rows_or_bytes(place, stream) != content.kept(place, stream):
        found.append(f"C1: stream {stream} reads differently")
    if "wal" in await place.kinds(stream):
        found.append(f"C4: stream {stream} is in WAL objects: {await place.kinds(stream)}")
    return found


async def _table_flaws(place: Place, content: Content, topic: str, partition: int) -> list[str]:
    """C3, C5, V1, V2, V4: the table has each row of the log once, in files that tile."""
    found = []
    stream = next(one for one in place.topics if one.name == topic).streams[partition]
    table = await place.tables.load(content.table_name(topic))
    assert table is not None, topic
    files = await place.files(topic, partition)
    keys = [file.key for file in files]
    if len(set(keys)) != len(keys):
        found.append(f"C5: {keys}")
    tasks = [origin.task for key in keys if (origin := parse_output_key(key)) is not None]
    if len(set(tasks)) != len(keys):
        found.append(f"V4: two files of one task: {keys}")
    rows = await place.table_rows(topic, partition)
    have = list(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))
    written = {
        row.offset: row.value for row in content.rows[stream] if row.timestamp_ms != UNREAD_MS
    }
    if [offset for offset, _ in have] != sorted({offset for offset, _ in have}):
        found.append(f"C3: offsets twice or out of order: {have}")
    if any(written.get(offset) != value for offset, value in have):
        found.append(f"C3: other values than the log: {have}")
    kept = [row for row in content.kept(place, stream) if row.timestamp_ms != UNREAD_MS]
    lacking = {row.offset for row in kept} - {offset for offset, _ in have}
    if lacking:
        found.append(f"C3: the table lacks {sorted(lacking)}")
    reach = table.vector.get(partition)
    head = content.rows[stream][-1].offset + 1
    if content.kept(place, stream) and reach != head:
        found.append(f"V1: the vector says {reach}, the log ends at {head}")
    files_named = [key for key in await place.kinds(stream) if key.endswith(".parquet")]
    named = {key for key in files_named if await _has_rows(place, key)}
    if not named <= set(keys):
        found.append(f"V2: the index names {named - set(keys)}, the table does not")
    return found


async def _missing(place: Place, content: Content) -> list[str]:
    """G1, V3: whatever a snapshot, an entry or an open task names exists."""
    there = {info.key async for info in place.objects.list("")}
    named: set[str] = set()
    for topic in place.topics:
        named |= await place.tables.reachable(content.table_name(topic.name))
        for stream in topic.streams:
            for piece in place.node.log.pieces(stream):
                if isinstance(piece.name, FileName) and piece.name.kind is FileKind.PARQUET:
                    named.add(piece.name.key)
    return [f"V3: {key} is named and not there" for key in sorted(named - there)]


async def _has_rows(place: Place, key: str) -> bool:
    content = await place.objects.get(key)
    return bool(pq.read_metadata(pa.BufferReader(content)).num_rows)
