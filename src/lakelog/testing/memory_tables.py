"""Tables in memory: the catalog's port without a library and without threads.

For simulations, whose time a thread would not keep. The offset vector and the tokens are judged by
the code that the real catalogs use; what is left out is everything that is written to objects.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakelog.catalog.definition import advanced, format_vector, judge_all
from lakelog.catalog.port import (
    CLUSTER_ID_PROPERTY,
    OFFSETS_PROPERTY,
    TOPIC_ID_PROPERTY,
    TOPIC_PROPERTY,
    Advance,
    AppendResult,
    DataFileFacts,
    DataFileView,
    Replacement,
    SnapshotView,
    TableDefinition,
    TableName,
    TableView,
)
from lakelog.clock import Clock
from lakelog.model.failures import Conflict, NotFound, Refused
from lakelog.records.table_schema import FIELD_IDS


@dataclass(frozen=True, slots=True)
class _Snapshot:
    view: SnapshotView
    files: tuple[DataFileFacts, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    definition: TableDefinition
    number: int
    """Of the table among all that were ever made."""
    vector: dict[int, int]
    snapshots: tuple[_Snapshot, ...]
    changes: int = 0


class MemoryTables:
    """The tables of one simulated catalog."""

    def __init__(self, clock: Clock, *, snapshots_kept: int = 10) -> None:
        assert snapshots_kept > 0, snapshots_kept
        self._clock = clock
        self._snapshots_kept = snapshots_kept
        self._tables: dict[TableName, _Table] = {}
        self._made = 0

    async def create(self, definition: TableDefinition) -> TableView:
        """Make the table of a topic, or find it made; `Refused` when the name is another's."""
        found = self._tables.get(definition.name)
        if found is None:
            self._made += 1
            found = _Table(definition, self._made, {}, ())
            self._tables[definition.name] = found
        if found.definition.topic_id != definition.topic_id:
            raise Refused(f"{definition.name}: is the table of another topic")
        return _view(found)

    async def load(self, name: TableName) -> TableView | None:
        """The table as it is now, or None."""
        found = self._tables.get(name)
        return None if found is None else _view(found)

    async def names(self, namespace: str) -> list[TableName]:
        """The tables of a namespace, sorted."""
        return sorted(name for name in self._tables if name.namespace == namespace)

    async def append(
        self,
        name: TableName,
        advances: Sequence[Advance],
        *,
        topic_id: str,
        commit_id: str,
        expect: str,
    ) -> AppendResult:
        """Add the files of all advances that the vector admits, in one commit, once."""
        table = self._table(name, topic_id=topic_id, expect=expect)
        judged = judge_all(table.vector, tuple(advances))
        if judged.fresh:
            files = tuple(file for one in judged.fresh for file in one.files)
            vector = advanced(table.vector, judged.fresh)
            table = self._commit(table, "append", (*_files(table), *files), vector)
        return AppendResult(
            table=_view(table),
            added=tuple(one.partition for one in judged.fresh),
            present=tuple(one.partition for one in judged.present),
            refused=judged.misfits,
        )

    async def move(self, name: TableName, *, topic_id: str, expect: str) -> TableView:
        """Make a snapshot with the files of the one before it."""
        table = self._table(name, topic_id=topic_id, expect=expect)
        return _view(self._commit(table, "append", _files(table), table.vector))

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
        table = self._table(name, topic_id=topic_id, expect=expect)
        removed = set(replacement.removed)
        kept = tuple(
            one
            for one in _files(table)
            if one.key not in removed or one.partition != replacement.partition
        )
        if len(kept) + len(removed) != len(_files(table)):
            raise Conflict(f"{name}: does not name all of {sorted(removed)}")
        operation = "overwrite" if replacement.drops_rows else "replace"
        operation = operation if replacement.added else "delete"
        files = (*kept, *replacement.added)
        return _view(self._commit(table, operation, files, table.vector))

    async def files(
        self, name: TableName, *, partition: int, start: int, end: int
    ) -> list[DataFileView]:
        """The data files with rows of these offsets, sorted."""
        found = self._tables.get(name)
        if found is None:
            raise NotFound(f"{name}: there is no such table")
        views = [
            DataFileView(
                key=one.key,
                partition=partition,
                offset_first=one.offset_first,
                offset_end=one.offset_end,
                row_count=one.row_count,
                size_bytes=one.size_bytes,
            )
            for one in _files(found)
            if one.partition == partition and one.offset_first < end and start < one.offset_end
        ]
        return sorted(views, key=lambda one: one.offset_first)

    async def reachable(self, name: TableName) -> frozenset[str]:
        """The keys of all objects that any snapshot of the table needs; empty without a table."""
        found = self._tables.get(name)
        snapshots = () if found is None else found.snapshots
        return frozenset(file.key for one in snapshots for file in one.files)

    async def drop(self, name: TableName, *, topic_id: str) -> None:
        """Forget the table of this topic; not there is fine, and so is that of another topic."""
        found = self._tables.get(name)
        if found is not None and found.definition.topic_id == topic_id:
            del self._tables[name]

    async def close(self) -> None:
        """Nothing: the tables outlive whoever uses them."""

    def _table(self, name: TableName, *, topic_id: str, expect: str) -> _Table:
        found = self._tables.get(name)
        if found is None:
            raise NotFound(f"{name}: there is no such table")
        if found.definition.topic_id != topic_id:
            raise NotFound(f"{name}: is the table of another topic now")
        if _token(found) != expect:
            raise Conflict(f"{name}: is another one than {expect}")
        return found

    def _commit(
        self,
        table: _Table,
        operation: str,
        files: tuple[DataFileFacts, ...],
        vector: dict[int, int],
    ) -> _Table:
        number = table.changes + 1
        view = SnapshotView(
            snapshot_id=number,
            sequence_number=number,
            timestamp_ms=self._clock.now_ms(),
            operation=operation,
            vector=dict(vector),
        )
        snapshots = (*table.snapshots, _Snapshot(view, files))[-self._snapshots_kept :]
        made = replace(table, vector=vector, snapshots=snapshots, changes=number)
        self._tables[table.definition.name] = made
        return made


def _files(table: _Table) -> tuple[DataFileFacts, ...]:
    return table.snapshots[-1].files if table.snapshots else ()


def _token(table: _Table) -> str:
    return f"table-{table.number}:{table.changes or ''}"


def _view(table: _Table) -> TableView:
    definition = table.definition
    properties = {
        **definition.properties,
        TOPIC_PROPERTY: definition.topic,
        TOPIC_ID_PROPERTY: definition.topic_id,
        CLUSTER_ID_PROPERTY: definition.cluster_id,
    }
    if table.vector:
        properties[OFFSETS_PROPERTY] = format_vector(table.vector)
    place = f"memory:///tables/{definition.name}/{definition.topic_id}"
    return TableView(
        name=definition.name,
        uuid=f"table-{table.number}",
        token=_token(table),
        location=place,
        metadata_location=f"{place}/{table.changes}.metadata.json",
        snapshot_id=table.changes or None,
        vector=dict(table.vector),
        properties=properties,
        snapshots=tuple(one.view for one in table.snapshots),
        field_ids=FIELD_IDS,
    )
