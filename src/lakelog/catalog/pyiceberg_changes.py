"""Changes of one table that PyIceberg stages and that are sent once, by one compare-and-swap.

Rules: the commit holds only on the snapshot that was loaded (rule 24), and PyIceberg's own loop is
not used at all, so that no property of a table can turn it on. Only a clear no of the catalog is a
`Conflict`, and only then what was written for the commit is deleted: after a doubt the table may
need it.

Manifests are merged by every commit, so that their number stays bounded. A library that merges the
newest manifests whenever there are eight writes the same growing one again and again: with small
appends every seventh commit took 20 times as long as the others. Here manifests are merged only
with their like, four at a time: a file is written anew once for each power of four, a long merge is
rare, and a table has few manifests beside the full ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
    ValidationException,
)
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import CommitTableResponse, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate
from pyiceberg.table.update.snapshot import (
    _FastAppendFiles,
    _ManifestMergeManager,
    _MergeAppendFiles,
)
from pyiceberg.typedef import EMPTY_DICT

from lakelog.catalog.live_files import ancestors, may_hold, reading
from lakelog.model.failures import (
    Conflict,
    Corrupt,
    Failure,
    NotFound,
    OutcomeUnknown,
    Refused,
)

FAN: Final = 4
"""So many manifests of one size are merged."""

FULL: Final = 1024
"""A manifest of so many files is never merged; reading one takes about 50 ms."""


def manifests_to_merge(counts: Sequence[int]) -> tuple[int, ...]:
    """The places of the manifests to write as one, by how many files each has; mostly none.

    What comes out of merging one size counts for the next: all of it is one merge.
    """
    chosen: list[int] = []
    total = 0
    floor, ceiling = 0, FAN
    while floor < FULL:
        alike = [place for place, count in enumerate(counts) if floor <= count < ceiling]
        is_merged_one = bool(chosen) and floor <= total < ceiling
        if len(alike) + is_merged_one >= FAN:
            for place in alike:
                if total < FULL:
                    chosen.append(place)
                    total += counts[place]
        floor, ceiling = ceiling, ceiling * FAN
    return tuple(sorted(chosen))


@dataclass(frozen=True, slots=True)
class TouchedManifest:
    """A manifest that names files to be removed."""

    manifest: ManifestFile
    kept: tuple[ManifestEntry, ...]
    removed: tuple[ManifestEntry, ...]


@dataclass(frozen=True, slots=True)
class Removal:
    """All manifests of a snapshot, by whether they name files to be removed."""

    touched: tuple[TouchedManifest, ...]
    untouched: tuple[ManifestFile, ...]

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files to be removed, as the manifests describe them."""
        return tuple(entry.data_file for one in self.touched for entry in one.removed)


def find_removal(table: Table, partition: int, locations: Sequence[str]) -> Removal:
    """Look for files of a partition, from the newest manifest on; `Conflict` when one is missing.

    The manifests after the last file that was found are not read.
    """
    missing = set(locations)
    touched, untouched = [], []
    snapshot = table.current_snapshot()
    with reading(table):
        for manifest in () if snapshot is None else snapshot.manifests(table.io):
            if not missing or not may_hold(manifest, partition):
                untouched.append(manifest)
                continue
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            removed = [one for one in entries if _is_among(one.data_file, missing, partition)]
            if not removed:
                untouched.append(manifest)
                continue
            kept = [one for one in entries if not _is_among(one.data_file, missing, partition)]
            missing -= {one.data_file.file_path for one in removed}
            touched.append(TouchedManifest(manifest, tuple(kept), tuple(removed)))
    if missing:
        name = "/".join(table.name())
        raise Conflict(f"{name}: does not name {', '.join(sorted(missing))} any more")
    return Removal(tuple(touched), tuple(untouched))


def _is_among(file: DataFile, locations: set[str], partition: int) -> bool:
    return file.file_path in locations and file.partition[0] == partition


class _Merger(_ManifestMergeManager[_FastAppendFiles]):
    """Writes manifests as one, whichever they are."""

    def __init__(self, producer: _FastAppendFiles) -> None:
        # No sizes: what to merge is decided elsewhere.
        super().__init__(0, 0, merge_enabled=True, snapshot_producer=producer)

    def merge(self, spec_id: int, manifests: list[ManifestFile]) -> ManifestFile:
        """One manifest with their files, and with what this commit removes."""
        return self._create_manifest(spec_id, manifests)


class _Append(_MergeAppendFiles):
    """An append that merges manifests as the module says, and can take back what it wrote."""

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        spec_id = self._transaction.table_metadata.default_spec_id
        alike = [one for one in manifests if _is_mergeable(one, spec_id)]
        places = manifests_to_merge([_files_in(one) for one in alike])
        if not places:
            return manifests
        taken = [alike[place] for place in places]
        merged = _Merger(self).merge(spec_id, taken)
        return [merged, *(one for one in manifests if one not in taken)]

    def discard(self) -> None:
        """Delete the manifests of a commit that certainly did not happen."""
        self._clean_all_uncommitted()


class _Replace(_Append):
    """Exchanges files; the manifests to write anew were found before, and are read once."""

    def __init__(
        self,
        operation: Operation,
        transaction: "StagedChange",
        removal: Removal,
        snapshot_properties: dict[str, str],
    ) -> None:
        super().__init__(
            # The library counts what an overwrite changes, and refuses to count for a replace.
            operation=Operation.OVERWRITE if operation is Operation.REPLACE else operation,
            transaction=transaction,
            io=transaction.io,
            snapshot_properties=snapshot_properties,
        )
        self._said = operation
        self._removal = removal
        for file in removal.files:
            self.delete_data_file(file)

    def _build_delete_files_partition_predicate(self) -> None:
        """Nothing: the manifests were looked through before."""

    def _deleted_entries(self) -> list[ManifestEntry]:
        removed = [entry for one in self._removal.touched for entry in one.removed]
        return [
            _with_status(one, ManifestEntryStatus.DELETED, self._snapshot_id) for one in removed
        ]

    def _existing_manifests(self) -> list[ManifestFile]:
        written = []
        for one in self._removal.touched:
            if one.kept:
                with self.new_manifest_writer(self.spec(one.manifest.partition_spec_id)) as writer:
                    for entry in one.kept:
                        status = ManifestEntryStatus.EXISTING
                        writer.add_entry(_with_status(entry, status, entry.snapshot_id))
                written.append(writer.to_manifest_file())
        # A manifest that only says what an earlier snapshot removed is of no use to this one.
        left = [one for one in self._removal.untouched if _files_in(one)]
        return written + left

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        counted = super()._summary(snapshot_properties)
        return Summary(operation=self._said, **counted.additional_properties)


def _with_status(
    entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None
) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def _is_mergeable(manifest: ManifestFile, spec_id: int) -> bool:
    return manifest.content is ManifestContent.DATA and manifest.partition_spec_id == spec_id


def _files_in(manifest: ManifestFile) -> int:
    """How many files it names; as many as it may, where its writer did not say."""
    counts = (manifest.added_files_count, manifest.existing_files_count)
    return sum(FULL if count is None else count for count in counts)


class StagedChange(Transaction):
    """Changes of one table that are sent once, together."""

    def __init__(self, table: Table) -> None:
        super().__init__(table, autocommit=False)
        self.io = table.io
        self._producer: _Append | None = None
        self._staged: tuple[int, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table with what is staged; PyIceberg makes a deep copy at each of 15 looks."""
        if self._staged is None or self._staged[0] != len(self._updates):
            self._staged = (len(self._updates), super().table_metadata)
        return self._staged[1]

    def add(self, files: Sequence[DataFile], summary: Mapping[str, str]) -> None:
        """Write the manifests of a new snapshot; without files too, for the snapshot's own sake.

        The requirement of a commit is a snapshot: an advance that left the snapshot as it was
        could be made twice.
        """
        producer = _Append(
            operation=Operation.APPEND,
            transaction=self,
            io=self.io,
            snapshot_properties=dict(summary),
        )
        self._stage_snapshot(producer, files)

    def exchange(
        self,
        removal: Removal,
        files: Sequence[DataFile],
        summary: Mapping[str, str],
        *,
        drops_rows: bool,
    ) -> None:
        """Write the manifests of a new snapshot with these files in place of those found."""
        operation = Operation.OVERWRITE if drops_rows else Operation.REPLACE
        operation = operation if files else Operation.DELETE
        self._stage_snapshot(_Replace(operation, self, removal, dict(summary)), files)

    def _stage_snapshot(self, producer: _Append, files: Sequence[DataFile]) -> None:
        self._producer = producer
        for file in files:
            producer.append_data_file(file)
        try:
            with reading(self._table):
                producer.commit()
        except (ValueError, ValidationException) as error:
            # Nothing was sent: what others wrote into the table is not what the library expects.
            raise Corrupt(f"{'/'.join(self._table.name())}: {error}") from error

    def expire(self, snapshots_kept: int) -> list[Snapshot]:
        """Forget all but the newest snapshots of each branch, and those with a tag.

        Returns those that will be gone.
        """
        assert snapshots_kept > 0, "a table without its newest snapshot is empty"
        metadata = self.table_metadata
        kept = set()
        for ref in metadata.refs.values():
            count = snapshots_kept if ref.snapshot_ref_type is SnapshotRefType.BRANCH else 1
            newest = islice(ancestors(metadata, ref.snapshot_id), count)
            kept |= {snapshot.snapshot_id for snapshot in newest}
        gone = [one for one in metadata.snapshots if one.snapshot_id not in kept]
        if gone:
            named = {"snapshot-ids": [one.snapshot_id for one in gone]}
            self._apply((RemoveSnapshotsUpdate.model_validate(named),))
        return gone

    def send(self) -> Table:
        """Commit, once, and return the table after it."""
        table = self._table
        name = "/".join(table.name())
        requirements = (*self._requirements, AssertTableUUID(uuid=table.metadata.table_uuid))
        try:
            response = table.catalog.commit_table(table, requirements, self._updates)
        except CommitFailedException as error:
            if self._producer is not None:
                self._producer.discard()
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
