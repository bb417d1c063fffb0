"""The built-in catalog: PyIceberg's, over pointers in the metadata store and objects in the port.

Rules:

- What is written is durable before it is named: files go through the object port, and the pointer
  moves last, by compare-and-swap.
- A definite conflict is `CommitFailedException`: PyIceberg deletes what it wrote for the commit.
  An unknown outcome is `CommitStateUnknownException`: it deletes nothing, for the table may need
  all of it. Other failures pass as they are, and nothing is deleted either.
- A catalog that was not opened by the log itself changes only what `guard` lets pass.
"""

from typing import TYPE_CHECKING, Final, NoReturn

from pyiceberg.catalog import MetastoreCatalog, PropertiesUpdateSummary
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io import FileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.view import View

from lakelog.catalog.file_io import ObjectFileIO
from lakelog.catalog.guard import refusal
from lakelog.catalog.pointers import ABSENT, Pointers, TablePointer
from lakelog.catalog.port import TableName
from lakelog.catalog.threads import Calls, ObjectFiles
from lakelog.model.failures import Conflict, Corrupt, NotFound, OutcomeUnknown, Unavailable
from lakelog.objects.port import ObjectStore
from lakelog.records.table_schema import FIELD_IDS

if TYPE_CHECKING:
    import pyarrow as pa

LOAD_ATTEMPTS: Final = 5
_NAMESPACES: Final = "namespaces come and go with their tables"


class BuiltinCatalog(MetastoreCatalog):
    """The catalog for one operation, in whose threads it is used."""

    def __init__(
        self,
        calls: Calls,
        pointers: Pointers,
        objects: ObjectStore,
        *,
        owner: bool,
        put_attempts: int = 3,
    ) -> None:
        super().__init__("lakelog")
        self._calls = calls
        self._pointers = pointers
        self._owner = owner
        self._loaded: dict[TableName, TablePointer] = {}
        self._files = ObjectFileIO(ObjectFiles(calls, objects, put_attempts=put_attempts))

    def _load_file_io(
        self, properties: Properties = EMPTY_DICT, location: str | None = None
    ) -> FileIO:
        return self._files

    def create_table(
        self,
        identifier: str | Identifier,
        schema: "Schema | pa.Schema",
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Make a table; only the log does, with its topics."""
        self._owned("tables are made with their topics")
        name = _name(identifier)
        staged = self._create_staged_table(
            (name.namespace, name.table),
            schema,
            location,
            partition_spec,
            sort_order,
            dict(properties),
        )
        self._write_metadata(staged.metadata, self._files, staged.metadata_location)
        try:
            self._move(name, staged, expect=ABSENT)
        except CommitFailedException as error:
            raise TableAlreadyExistsError(f"{name}: is there already") from error
        return self._table(name, staged.metadata, staged.metadata_location)

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table at its newest metadata."""
        name = _name(identifier)
        found = self._current(name)
        if found is None:
            raise NoSuchTableError(f"{name}: there is no such table")
        return found[1]

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Apply the updates if the requirements hold, by one move of the pointer."""
        name = _name(table.name())
        found = self._current(name)
        current = None if found is None else found[1]
        if not self._owner:
            _guarded(name, current, updates)
        try:
            staged = self._update_and_stage_table(current, table.name(), requirements, updates)
        except (ValueError, ValidationError, NotImplementedError) as error:
            # Nothing was written: what is asked for does not apply to the table as it is now.
            raise CommitFailedException(f"{name}: {error}") from error
        if current is not None and staged.metadata == current.metadata:
            return _response(current)
        self._write_metadata(staged.metadata, self._files, staged.metadata_location)
        self._move(name, staged, expect=ABSENT if found is None else found[0].version)
        return _response(staged)

    def _move(self, name: TableName, staged: StagedTable, *, expect: int) -> None:
        place = staged.metadata_location
        try:
            self._calls.write(lambda: self._pointers.move(name, place, expect=expect))
        except Conflict as error:
            self._discard(place)
            raise CommitFailedException(f"{name}: somebody was faster: {error}") from error
        except OutcomeUnknown as error:
            raise CommitStateUnknownException(f"{name}: {error}") from error

    def _discard(self, location: str) -> None:
        try:
            self._files.delete(location)
        except OSError:
            return  # a collector finds what nothing names

    def _current(self, name: TableName) -> tuple[TablePointer, Table] | None:
        before: TablePointer | None = None
        for _ in range(LOAD_ATTEMPTS):
            pointer = self._calls.read(lambda: self._pointers.get(name))
            if pointer is None:
                return None
            if pointer == before:
                raise Corrupt(f"{name}: its metadata {pointer.metadata_location} is gone")
            try:
                metadata = FromInputFile.table_metadata(
                    self._files.new_input(pointer.metadata_location)
                )
            except NotFound:
                # C8: many commits later this metadata was deleted, and the pointer is another.
                before = pointer
                continue
            except (ValueError, ValidationError) as error:
                raise Corrupt(f"{name}: {pointer.metadata_location}: {error}") from error
            self._loaded[name] = pointer
            return pointer, self._table(name, metadata, pointer.metadata_location)
        raise Unavailable(f"{name}: its pointer moves faster than its metadata can be read")

    def _table(self, name: TableName, metadata: TableMetadata, place: str) -> Table:
        return Table((name.namespace, name.table), metadata, place, self._files, self)

    def drop_table(self, identifier: str | Identifier) -> None:
        """Forget the table, not its files; only the log does, with its topics.

        A table that this operation loaded is dropped as it was then, or `Conflict` says that it
        is another one by now.
        """
        self._owned("tables go with their topics")
        name = _name(identifier)
        pointer = self._loaded.get(name) or self._calls.read(lambda: self._pointers.get(name))
        if pointer is None:
            raise NoSuchTableError(f"{name}: there is no such table")
        self._calls.write(lambda: self._pointers.drop(name, expect=pointer.version))

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """The tables of a namespace as tuples."""
        space = _namespace(namespace)
        found = self._calls.read(lambda: self._pointers.tables(space))
        return [(pointer.name.namespace, pointer.name.table) for pointer in found]

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """The namespaces that have a table; they have no namespaces in them."""
        if namespace:
            return []
        return [(space,) for space in self._calls.read(self._pointers.namespaces)]

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        """Nothing, for a namespace that is there."""
        if not self.list_tables(namespace):
            raise NoSuchNamespaceError(f"{_namespace(namespace)}: there is no such namespace")
        return {}

    def create_namespace(
        self, namespace: str | Identifier, properties: Properties = EMPTY_DICT
    ) -> None:
        """Refused: a namespace is there when a table is in it."""
        _never(_NAMESPACES)

    def drop_namespace(self, namespace: str | Identifier) -> None:
        """Refused: a namespace is gone when no table is in it."""
        _never(_NAMESPACES)

    def update_namespace_properties(
        self,
        namespace: str | Identifier,
        removals: set[str] | None = None,
        updates: Properties = EMPTY_DICT,
    ) -> PropertiesUpdateSummary:
        """Refused: namespaces have no properties."""
        _never("namespaces have no properties")

    def register_table(
        self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False
    ) -> Table:
        """Refused: only topics have tables here."""
        _never("tables are made with their topics")

    def purge_table(self, identifier: str | Identifier) -> None:
        """Refused: it would delete files that the log still names."""
        _never("the log owns the table's files")

    def rename_table(
        self, from_identifier: str | Identifier, to_identifier: str | Identifier
    ) -> Table:
        """Refused: a table has the name of its topic."""
        _never("a table has the name of its topic")

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        """None: there are no views."""
        return []

    def view_exists(self, identifier: str | Identifier) -> bool:
        """Never: there are no views."""
        return False

    def load_view(self, identifier: str | Identifier) -> View:
        """Refused: there are no views."""
        _never("there are no views")

    def drop_view(self, identifier: str | Identifier) -> None:
        """Refused: there are no views."""
        _never("there are no views")

    def register_view(self, identifier: str | Identifier, metadata_location: str) -> View:
        """Refused: there are no views."""
        _never("there are no views")

    def _owned(self, reason: str) -> None:
        if not self._owner:
            _never(reason)


def _never(reason: str) -> NoReturn:
    raise ForbiddenError(reason)


def _guarded(name: TableName, current: Table | None, updates: tuple[TableUpdate, ...]) -> None:
    if current is None:
        _never("tables are made with their topics")
    fields = [field.model_dump(mode="json", by_alias=True) for field in current.schema().fields]
    reason = refusal(
        [update.model_dump(mode="json", by_alias=True) for update in updates],
        properties=current.properties,
        fields=[field for field in fields if field["name"] in FIELD_IDS],
    )
    if reason is not None:
        raise ForbiddenError(f"{name}: {reason}")


def _response(table: Table) -> CommitTableResponse:
    place = {"metadata-location": table.metadata_location}
    return CommitTableResponse(metadata=table.metadata, **place)


def _name(identifier: str | Identifier) -> TableName:
    parts = identifier if isinstance(identifier, tuple) else tuple(identifier.split("."))
    if len(parts) != 2:
        raise NoSuchTableError(f"{identifier!r}: name a table as a tuple (namespace, table)")
    return TableName(*parts)


def _namespace(namespace: str | Identifier) -> str:
    parts = namespace if isinstance(namespace, tuple) else (namespace,)
    if len(parts) != 1:
        raise NoSuchNamespaceError(f"{namespace!r}: namespaces have one level")
    return parts[0]
