"""One table, one compare-and-swap: make it, append to it, with PyIceberg, in any of its catalogs.

`append_files` loads nothing and repeats nothing: it decides by the vector of the table it is given
and sends one commit that holds only on the snapshot it decided on (rule 24). The files, the new
vector and the expiry of old snapshots are one change. PyIceberg's own loop is not used at all, so
that no property of a table can turn it on.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableResponse, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate
from pyiceberg.table.update.snapshot import _MergeAppendFiles

from lakelog.catalog.facts import (
    data_file,
    iceberg_schema,
    partition_spec,
    sort_order,
    table_properties,
)
from lakelog.catalog.locations import Locations
from lakelog.catalog.offsets import advanced, format_vector, judge_all
from lakelog.catalog.port import (
    COMMIT_ID_PROPERTY,
    OFFSETS_PROPERTY,
    TOPIC_ID_PROPERTY,
    Advance,
    Appended,
    DataFileFacts,
    TableDefinition,
    TableName,
)
from lakelog.catalog.reach import ancestors, vector_of, view_of
from lakelog.model.failures import Conflict, Failure, NotFound, OutcomeUnknown, Refused


def create_table(catalog: Catalog, definition: TableDefinition, location: str) -> Table:
    """Make the table of a topic, or find that it is made; `Refused` when the name is another's."""
    name = definition.name
    identifier = (name.namespace, name.table)
    try:
        table = catalog.create_table(
            identifier,
            iceberg_schema(),
            location,
            partition_spec(),
            sort_order(),
            table_properties(definition),
        )
    except TableAlreadyExistsError:
        try:
            table = catalog.load_table(identifier)
        except NoSuchTableError as error:
            raise Conflict(f"{name}: came and went meanwhile") from error
    except CommitStateUnknownException as error:
        raise OutcomeUnknown(f"{name}: {error}") from error
    if not _is_of(table, definition.topic_id):
        raise Refused(f"{name}: is the table of another topic; choose another namespace")
    return table


def load_table(catalog: Catalog, name: TableName) -> Table | None:
    """The table at its newest metadata, or None."""
    try:
        return catalog.load_table((name.namespace, name.table))
    except NoSuchTableError:
        return None


def drop_table(catalog: Catalog, name: TableName, *, topic_id: str) -> None:
    """Forget the topic's table, not its files; gone already is fine, another topic's stays."""
    table = load_table(catalog, name)
    if table is None or not _is_of(table, topic_id):
        return
    try:
        catalog.drop_table((name.namespace, name.table))
    except NoSuchTableError:
        return


def _is_of(table: Table, topic_id: str) -> bool:
    return table.properties.get(TOPIC_ID_PROPERTY) == topic_id


def append_files(
    table: Table,
    advances: Sequence[Advance],
    locations: Locations,
    *,
    topic_id: str,
    commit_id: str,
    snapshots_kept: int,
) -> Appended:
    """Append what the table's vector admits, by one commit; nothing is sent when that is nothing.

    `Conflict`, `Unavailable` and `Refused` say that nothing changed, `OutcomeUnknown` that it may
    have. In both cases: load the table and call again.
    """
    if not _is_of(table, topic_id):
        # The topic was deleted and made again: its offsets are others, though they look the same.
        raise NotFound(f"{'/'.join(table.name())}: is the table of another topic now")
    vector = vector_of(table)
    judged = judge_all(vector, tuple(advances))
    if judged.fresh:
        text = format_vector(advanced(vector, judged.fresh))
        change = _Change(table)
        change.set_properties({OFFSETS_PROPERTY: text})
        change.add(
            [(file, locations.location(file.key)) for one in judged.fresh for file in one.files],
            {OFFSETS_PROPERTY: text, COMMIT_ID_PROPERTY: commit_id},
        )
        change.expire(snapshots_kept)
        table = change.send()
    return Appended(
        table=view_of(table),
        added=tuple(one.partition for one in judged.fresh),
        present=tuple(one.partition for one in judged.present),
        refused=judged.misfits,
    )


class _Append(_MergeAppendFiles):
    """An append with merging of manifests that can take back what it wrote."""

    def discard(self) -> None:
        """Delete the manifests of a commit that certainly did not happen."""
        self._clean_all_uncommitted()


class _Change(Transaction):
    """Changes of one table that are sent once, together."""

    def __init__(self, table: Table) -> None:
        super().__init__(table, autocommit=False)
        self._append: _Append | None = None
        self._staged: tuple[int, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table with what is staged; PyIceberg makes a deep copy at each of 15 looks."""
        if self._staged is None or self._staged[0] != len(self._updates):
            self._staged = (len(self._updates), super().table_metadata)
        return self._staged[1]

    def add(self, files: Sequence[tuple[DataFileFacts, str]], summary: Mapping[str, str]) -> None:
        """Write the manifests of a new snapshot; without files too, for the snapshot's own sake.

        The requirement of a commit is a snapshot: an advance that left the snapshot as it was
        could be made twice.
        """
        self._append = _Append(
            operation=Operation.APPEND,
            transaction=self,
            io=self._table.io,
            snapshot_properties=dict(summary),
        )
        for facts, location in files:
            self._append.append_data_file(data_file(self._table, facts, location))
        self._append.commit()

    def expire(self, snapshots_kept: int) -> None:
        """Forget all but the newest snapshots of each branch, and those with a tag."""
        assert snapshots_kept > 0, "a table without its newest snapshot is empty"
        metadata = self.table_metadata
        kept = set()
        for ref in metadata.refs.values():
            count = snapshots_kept if ref.snapshot_ref_type is SnapshotRefType.BRANCH else 1
            newest = islice(ancestors(metadata, ref.snapshot_id), count)
            kept |= {snapshot.snapshot_id for snapshot in newest}
        gone = [one.snapshot_id for one in metadata.snapshots if one.snapshot_id not in kept]
        if gone:
            self._apply((RemoveSnapshotsUpdate.model_validate({"snapshot-ids": gone}),))

    def send(self) -> Table:
        """Commit, once, and return the table after it."""
        table = self._table
        name = "/".join(table.name())
        requirements = (*self._requirements, AssertTableUUID(uuid=table.metadata.table_uuid))
        try:
            response = table.catalog.commit_table(table, requirements, self._updates)
        except CommitFailedException as error:
            if self._append is not None:
                self._append.discard()
            raise Conflict(f"{name}: {error}") from error
        except CommitStateUnknownException as error:
            raise OutcomeUnknown(f"{name}: {error}") from error
        except NoSuchTableError as error:
            raise NotFound(f"{name}: there is no such table any more") from error
        except ForbiddenError as error:
            raise Refused(f"{name}: {error}") from error
        except Failure:
            raise
        except Exception as error:  # of a foreign catalog: all but a clear no is unknown
            raise OutcomeUnknown(f"{name}: {type(error).__name__}: {error}") from error
        _delete_old_metadata(table, response)
        place = response.metadata_location
        return Table(table.name(), response.metadata, place, table.io, table.catalog)


def _delete_old_metadata(before: Table, response: CommitTableResponse) -> None:
    """Delete the metadata that fell out of the table's log by this commit."""
    if before.properties.get("write.metadata.delete-after-commit.enabled") != "true":
        return
    logged = {entry.metadata_file for entry in response.metadata.metadata_log}
    for entry in before.metadata.metadata_log:
        if entry.metadata_file not in logged:
            try:
                before.io.delete(entry.metadata_file)
            except OSError:
                continue  # the commit stands; a collector finds what nothing names
