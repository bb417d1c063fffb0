"""The port to table catalogs, and the values that cross it. Loads neither PyIceberg nor pyarrow.

Rules every catalog keeps:

- An advance of a partition from `start` to `end` is admitted by the table's offset vector alone,
  and by one compare-and-swap on the snapshot whose vector was read: never by a name, and never
  again by a library that repeats by itself (rule 24).
- Whoever changes a table names the token of the view that it decided on. A change is tried once:
  whether it is still right on another snapshot, only its caller can say.
- `Conflict` and `Unavailable` say that certainly nothing changed, `OutcomeUnknown` that it may
  have: load the table and decide again. `NotFound` says that there is no such table of the topic.
- The data files exist, complete and durable, before they are named here.
- A location outside the object store's prefix is neither read nor written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

SCHEMA_VERSION: Final = 1

TOPIC_PROPERTY: Final = "lakelog.topic"
TOPIC_ID_PROPERTY: Final = "lakelog.topic_id"
CLUSTER_ID_PROPERTY: Final = "lakelog.cluster_id"
SCHEMA_VERSION_PROPERTY: Final = "lakelog.schema_version"
OFFSETS_PROPERTY: Final = "lakelog.offsets"
"""The offset vector, in the table's properties and in the summary of every snapshot of ours."""

COMMIT_ID_PROPERTY: Final = "lakelog.commit_id"
"""In the summary of a snapshot, for humans; nothing is decided by it."""


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table as a catalog knows it: both parts verbatim, dots and all."""

    namespace: str
    table: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.table}"


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """What is fixed when the table of a topic is made."""

    name: TableName
    topic: str
    topic_id: str
    """32 hexadecimal digits: a topic made again under its name gets another table."""
    cluster_id: str
    properties: Mapping[str, str] = field(default_factory=dict)
    """What else the table shall say; nothing here changes what we rely on."""


@dataclass(frozen=True, slots=True)
class DataFileFacts:
    """What a table has to know of a Parquet file, so that nobody reads the file's footer again.

    `offset_first` and `offset_end` are of the rows that are there: [offset_first, offset_end).
    Timestamps are microseconds, the least and the greatest of the rows.
    """

    key: str
    partition: int
    offset_first: int
    offset_end: int
    row_count: int
    size_bytes: int
    timestamp_min_us: int
    timestamp_max_us: int
    column_sizes: tuple[tuple[str, int], ...] = ()
    """Compressed bytes of each column by its dotted name, such as `headers.element.key`."""
    row_group_starts: tuple[int, ...] = ()
    """Where in the file each row group begins, rising."""

    def __post_init__(self) -> None:
        assert self.partition >= 0, self
        assert 0 <= self.offset_first < self.offset_end, self
        assert 0 < self.row_count <= self.offset_end - self.offset_first, self
        assert self.size_bytes > 0, self
        assert self.timestamp_min_us <= self.timestamp_max_us, self


@dataclass(frozen=True, slots=True)
class Advance:
    """One partition moves on from `start` to `end` with these files, sorted by offset.

    There may be fewer rows than offsets, and no file at all where none was left to write.
    """

    partition: int
    start: int
    end: int
    files: tuple[DataFileFacts, ...]
    at_log_start: bool = False
    """`start` is the log's start: what the table lacks before it is gone for ever."""

    def __post_init__(self) -> None:
        assert 0 <= self.start < self.end, self
        reached = self.start
        for file in self.files:
            assert file.partition == self.partition, (self.partition, file)
            assert reached <= file.offset_first, (reached, file)
            reached = file.offset_end
        assert reached <= self.end, (reached, self.end)


@dataclass(frozen=True, slots=True)
class Replacement:
    """Files of one partition give way to others, and the vector stays as it is.

    With nothing added the files just go. Added files are sorted by offset and lie between the
    first and the last offset of those removed.
    """

    partition: int
    removed: tuple[str, ...]
    """Keys; a table that does not name all of them now stays as it is."""
    added: tuple[DataFileFacts, ...]
    drops_rows: bool
    """Rows vanish; otherwise there are as many after it as before."""

    def __post_init__(self) -> None:
        assert self.removed, self
        assert len(set(self.removed)) == len(self.removed), self
        assert self.added or self.drops_rows, self
        reached = 0
        for file in self.added:
            assert file.partition == self.partition, (self.partition, file)
            assert file.key not in self.removed, file
            assert reached <= file.offset_first, (reached, file)
            reached = file.offset_end


@dataclass(frozen=True, slots=True)
class Misfit:
    """An advance that the table's vector does not admit, and why."""

    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """One snapshot that the table still has."""

    snapshot_id: int
    sequence_number: int
    timestamp_ms: int
    operation: str
    vector: Mapping[int, int] | None
    """The end offset of every partition in it; None when somebody else made the snapshot."""


@dataclass(frozen=True, slots=True)
class TableView:
    """A table at one moment."""

    name: TableName
    uuid: str
    token: str
    """The table and its newest snapshot: another one after every change of files or vector."""
    location: str
    metadata_location: str
    snapshot_id: int | None
    vector: Mapping[int, int]
    properties: Mapping[str, str]
    snapshots: tuple[SnapshotView, ...]
    field_ids: Mapping[str, int]
    """The ids of a topic's columns by path, as this table numbers those that it has of them."""


@dataclass(frozen=True, slots=True)
class DataFileView:
    """A data file that the newest snapshot names; offsets [offset_first, offset_end)."""

    key: str
    partition: int
    offset_first: int
    offset_end: int
    row_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class AppendResult:
    """What became of each advance of a round, by partition."""

    table: TableView
    added: tuple[int, ...]
    """Partitions whose files this call added."""
    present: tuple[int, ...]
    """Partitions whose offsets were in the table already."""
    refused: tuple[Misfit, ...]


@dataclass(frozen=True, slots=True)
class CatalogLimits:
    """How long a catalog may take and how much history a table keeps."""

    operation_s: float = 60.0
    threads: int = 4
    attempts: int = 5
    put_attempts: int = 3
    snapshots_kept: int = 10


class Tables(Protocol):
    """The tables of topics in one catalog."""

    async def create(self, definition: TableDefinition) -> TableView:
        """Make the table of a topic, or find it made; `Refused` when the name is another's."""

    async def load(self, name: TableName) -> TableView | None:
        """The table as it is now, or None."""

    async def names(self, namespace: str) -> list[TableName]:
        """The tables of a namespace, sorted."""

    async def append(
        self,
        name: TableName,
        advances: Sequence[Advance],
        *,
        topic_id: str,
        commit_id: str,
        expect: str,
    ) -> AppendResult:
        """Add the files of all advances that the vector admits, in one commit, once.

        `Conflict` when the table's token is not `expect`; `NotFound` when there is no table, or
        when it is now that of another topic.
        """

    async def move(self, name: TableName, *, topic_id: str, expect: str) -> TableView:
        """Make a snapshot with the files of the one before it.

        Whatever else was on its way with the token `expect` never lands once this has.
        """

    async def replace(
        self,
        name: TableName,
        replacement: Replacement,
        *,
        topic_id: str,
        commit_id: str,
        expect: str,
    ) -> TableView:
        """Exchange files in one commit, once; `Conflict` too when one to remove is not there."""

    async def files(
        self, name: TableName, *, partition: int, start: int, end: int
    ) -> list[DataFileView]:
        """The data files with rows of these offsets, sorted; for a table ahead of the index."""

    async def reachable(self, name: TableName) -> frozenset[str]:
        """The keys of all objects that any snapshot of the table needs; empty without a table."""

    async def drop(self, name: TableName, *, topic_id: str) -> None:
        """Forget the table of this topic; its objects stay for the collector.

        Not there is fine, and so is the table of another topic, which stays.
        """

    async def close(self) -> None:
        """End the threads; the stores are the caller's."""
