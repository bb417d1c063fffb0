"""A catalog and an index of values; a commit writes the objects that a real one writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakelog.catalog.port import TOPIC_ID_PROPERTY, TOPIC_PROPERTY, TableName, TableView
from lakelog.domain.events import Swap
from lakelog.domain.state import Swapped
from lakelog.index.entries import Entry, StreamIndex
from lakelog.index.ports import IndexedTopic, StreamRange, StreamView
from lakelog.model.failures import Conflict, NotFound
from lakelog.model.ids import TopicId
from lakelog.records.table_schema import FIELD_IDS
from lakelog.streams.objects import FileKind, FileName, WalName, digest
from lakelog.wal.layout import make_wal_id

SNAPSHOTS_KEPT = 2
METADATA_KEPT = 2


@dataclass(frozen=True, slots=True)
class File:
    """A data file of a table."""

    key: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    number: int
    manifest_list: str
    manifests: tuple[str, ...]
    files: tuple[File, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table at one metadata.json."""

    name: TableName
    topic_id: str
    uuid: int
    metadata: str
    log: tuple[str, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    offset: int | None = None

    @property
    def token(self) -> str:
        return f"{self.uuid}:{self.snapshots[-1].number if self.snapshots else ''}"

    @property
    def files(self) -> tuple[File, ...]:
        return self.snapshots[-1].files if self.snapshots else ()

    @property
    def home(self) -> str:
        return f"tables/{self.name.namespace}/{self.name.table}/{self.topic_id}/metadata"

    def named(self) -> set[str]:
        found = {self.metadata, *self.log}
        for one in self.snapshots:
            found |= {one.manifest_list, *one.manifests, *(file.key for file in one.files)}
        return found

    def view(self) -> TableView:
        return TableView(
            name=self.name,
            uuid=str(self.uuid),
            token=self.token,
            location=self.home,
            metadata_location=self.metadata,
            snapshot_id=self.snapshots[-1].number if self.snapshots else None,
            vector={} if self.offset is None else {0: self.offset},
            properties={TOPIC_PROPERTY: self.name.table, TOPIC_ID_PROPERTY: self.topic_id},
            snapshots=(),
            field_ids=FIELD_IDS,
        )


def unique(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012d}"


def born(name: TableName, topic_id: str, number: int) -> Table:
    """A new table."""
    home = f"tables/{name.namespace}/{name.table}/{topic_id}/metadata"
    return Table(name, topic_id, number, f"{home}/00000-{unique(number)}.metadata.json")


@dataclass(frozen=True, slots=True)
class Staged:
    """A commit whose objects are written and that has not been sent."""

    base: str
    after: Table
    objects: tuple[str, ...]


def staged(
    table: Table, files: tuple[File, ...], offset: int | None, number: int, *, merge: bool
) -> Staged:
    """What a commit writes that leaves the table with these files."""
    mark = unique(number)
    added = f"{table.home}/{mark}-m0.avro"
    before = table.snapshots[-1].manifests if table.snapshots else ()
    is_append = not merge and files[: len(table.files)] == table.files
    written = () if is_append and files == table.files else (added,)
    manifests = (*before, *written) if is_append else written
    listed = f"{table.home}/snap-{number}-0-{mark}.avro"
    snapshot = Snapshot(number, listed, manifests, files)
    metadata = f"{table.home}/{number:05d}-{mark}.metadata.json"
    after = replace(
        table,
        metadata=metadata,
        log=(*table.log, table.metadata)[-METADATA_KEPT:],
        snapshots=(*table.snapshots, snapshot)[-SNAPSHOTS_KEPT:],
        offset=offset,
    )
    return Staged(table.token, after, (*written, listed, metadata))


@dataclass
class Catalog:
    """The tables by name."""

    tables: dict[TableName, Table] = field(default_factory=dict)

    def named(self) -> set[str]:
        return {key for table in self.tables.values() for key in table.named()}

    def land(self, change: Staged) -> list[str]:
        """Change the table if it is as it was; what its log of metadata let go of."""
        name = change.after.name
        before = self.tables.get(name)
        if before is None or before.topic_id != change.after.topic_id:
            raise NotFound("no such table")
        if before.token != change.base:
            raise Conflict("somebody was faster")
        # Its log goes on from what is there now: properties may have changed meanwhile.
        log = (*before.log, before.metadata)
        self.tables[name] = replace(change.after, log=log[-METADATA_KEPT:])
        return [key for key in log[:-METADATA_KEPT] if key not in self.tables[name].named()]


@dataclass
class Stream:
    """One partition in the index, as `apply` keeps it."""

    number: int
    topic: str
    topic_id: TopicId
    log_start: int = 0
    head: int = 0
    entries: list[Entry] = field(default_factory=list)

    def produce(self) -> None:
        name = WalName(make_wal_id(self.number * 1000 + self.head, bytes(10)), "z")
        self.entries.append(Entry(self.head, self.head + 2, name, 0, 10, 1, domain=0))
        self.head += 2

    def trim(self, offset: int) -> None:
        self.log_start = max(self.log_start, min(offset, self.head))
        self.entries = [one for one in self.entries if one.end > self.log_start]

    def swap(self, swap: Swap) -> bool:
        inside = [one for one in self.entries if one.end > swap.start and one.start < swap.end]
        fits = inside and inside[-1].end == swap.end
        if not fits or {digest(one.name) for one in inside} - set(swap.replaces):
            return False
        at = self.entries.index(inside[0])
        new = Entry(inside[0].start, swap.end, swap.file, 0, swap.size_bytes, 1, domain=0)
        self.entries[at : at + len(inside)] = [new]
        return True

    def view(self) -> StreamView:
        first = self.entries[0].start if self.entries else self.head
        return StreamView(self.number, self.log_start, first, tuple(self.entries))

    def run_of(self, kind: FileKind) -> list[Entry]:
        """The first entries of that kind that follow each other."""
        run: list[Entry] = []
        for one in self.entries:
            if one.kind is kind:
                run.append(one)
            elif run:
                break
        return run

    def named(self) -> set[str]:
        return {one.name.key for one in self.entries if isinstance(one.name, FileName)}


class OnlyNames:
    """The part of `LogIndex` that nobody asks for here."""

    async def cluster_id(self) -> str:
        raise AssertionError("nobody asks for this here")

    async def backlog(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        raise AssertionError("nobody asks for this here")

    async def columns(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        raise AssertionError("nobody asks for this here")

    async def views(self, ranges: Sequence[StreamRange]) -> Sequence[StreamView | None]:
        raise AssertionError("nobody asks for this here")

    async def swap(self, swap: Swap) -> Swapped:
        raise AssertionError("nobody asks for this here")


def topic_view(name: str, topic_id: TopicId, *streams: int, retention_ms: int = -1) -> IndexedTopic:
    return IndexedTopic(
        name=name,
        topic_id=topic_id,
        streams=streams,
        has_table=True,
        freshness_ms=0,
        message_bytes_max=1 << 20,
        table_retention_ms=retention_ms,
        is_compacted=False,
        delete_retention_ms=0,
        min_compaction_lag_ms=0,
        max_compaction_lag_ms=0,
        dirty_ratio_min=0.5,
    )
