"""One table, one compare-and-swap: make it, append to it, exchange its files, with PyIceberg.

In any of its catalogs. What changes a table loads nothing and repeats nothing: it decides by the
table it is given, which must be the one its caller decided on, and sends one commit that holds
only on that snapshot (rule 24). The files, the vector and the expiry of old snapshots are one
change, and what expires is put down before it is sent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyiceberg.exceptions import (
    CommitStateUnknownException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table

from lakelog.catalog.change import Change, Removal, find_removal
from lakelog.catalog.definition import FORMAT_VERSION, table_properties
from lakelog.catalog.facts import (
    data_file,
    iceberg_schema,
    partition_spec,
    sort_order,
)
from lakelog.catalog.locations import Locations
from lakelog.catalog.offsets import advanced, format_vector, judge_all
from lakelog.catalog.port import (
    COMMIT_ID_PROPERTY,
    OFFSETS_PROPERTY,
    TOPIC_ID_PROPERTY,
    Advance,
    Appended,
    Replacement,
    SnapshotView,
    TableDefinition,
    TableName,
    TableView,
)
from lakelog.catalog.reach import number, reading, snapshot_view, token_of, vector_of, view_of
from lakelog.model.failures import Conflict, NotFound, OutcomeUnknown, Refused

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from lakelog.catalog.external import ExternalCatalog

AnyCatalog: TypeAlias = "Catalog | ExternalCatalog"


def _nothing(_: Sequence[SnapshotView]) -> None:
    """What is done where nobody remembers snapshots."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On which table a change holds, and what it says of itself."""

    topic_id: str
    expect: str
    """The token of the table that the caller decided on."""
    commit_id: str
    snapshots_kept: int
    remember: Callable[[Sequence[SnapshotView]], None] = _nothing
    """Told of the snapshots that will be gone, before the change is sent; may raise."""

    def check(self, table: Table) -> None:
        """`NotFound` for the table of another topic, `Conflict` for one that moved on."""
        name = "/".join(table.name())
        if not _is_of(table, self.topic_id):
            # The topic was deleted and made again: its offsets are others, though they look alike.
            raise NotFound(f"{name}: is the table of another topic now")
        if token_of(table) != self.expect:
            raise Conflict(f"{name}: moved on from {self.expect} to {token_of(table)}")


def create_table(catalog: AnyCatalog, definition: TableDefinition, location: str) -> Table:
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
            {"format-version": str(FORMAT_VERSION), **table_properties(definition)},
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


def load_table(catalog: AnyCatalog, name: TableName) -> Table | None:
    """The table at its newest metadata, or None."""
    try:
        return catalog.load_table((name.namespace, name.table))
    except NoSuchTableError:
        return None


def drop_table(catalog: AnyCatalog, name: TableName, *, topic_id: str) -> None:
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
    table: Table, advances: Sequence[Advance], locations: Locations, terms: Terms
) -> Appended:
    """Append what the table's vector admits, by one commit; nothing is sent when that is nothing.

    `Conflict`, `Unavailable` and `Refused` say that nothing changed, `OutcomeUnknown` that it may
    have. In both cases: load the table and decide anew.
    """
    terms.check(table)
    vector = _vector(table)
    judged = judge_all(vector, tuple(advances))
    if judged.fresh:
        text = format_vector(advanced(vector, judged.fresh))
        files = [file for one in judged.fresh for file in one.files]
        change = Change(table)
        change.set_properties({OFFSETS_PROPERTY: text})
        change.add(
            [data_file(table, file, locations.location(file.key)) for file in files],
            {OFFSETS_PROPERTY: text, COMMIT_ID_PROPERTY: terms.commit_id},
        )
        table = _sent(change, terms)
    return Appended(
        table=view_of(table),
        added=tuple(one.partition for one in judged.fresh),
        present=tuple(one.partition for one in judged.present),
        refused=judged.misfits,
    )


def move_table(table: Table, terms: Terms) -> TableView:
    """Make a snapshot that changes nothing, so that no commit on the one before can land."""
    terms.check(table)
    text = format_vector(_vector(table))
    change = Change(table)
    change.set_properties({OFFSETS_PROPERTY: text})
    change.add((), {OFFSETS_PROPERTY: text, COMMIT_ID_PROPERTY: terms.commit_id})
    return view_of(_sent(change, terms))


def replace_files(
    table: Table, replacement: Replacement, locations: Locations, terms: Terms
) -> TableView:
    """Exchange files by one commit; `Conflict`, and nothing written, when one is not there."""
    terms.check(table)
    removed = [locations.location(key) for key in replacement.removed]
    text = format_vector(_vector(table))
    removal = find_removal(table, replacement.partition, removed)
    _check_fit(table, replacement, removal)
    change = Change(table)
    change.set_properties({OFFSETS_PROPERTY: text})
    change.exchange(
        removal,
        [data_file(table, file, locations.location(file.key)) for file in replacement.added],
        {OFFSETS_PROPERTY: text, COMMIT_ID_PROPERTY: terms.commit_id},
        drops_rows=replacement.drops_rows,
    )
    return view_of(_sent(change, terms))


def _sent(change: Change, terms: Terms) -> Table:
    """The table after the change, which also lets old snapshots go."""
    gone = change.expire(terms.snapshots_kept)
    if gone:
        terms.remember([snapshot_view(one) for one in gone])
    return change.send()


def _vector(table: Table) -> dict[int, int]:
    with reading(table):
        return vector_of(table)


def _check_fit(table: Table, replacement: Replacement, removal: Removal) -> None:
    """Refuse files that cannot hold what those hold that they replace."""
    name = "/".join(table.name())
    before = sum(file.record_count for file in removal.files)
    after = sum(file.row_count for file in replacement.added)
    if after > before or (after < before and not replacement.drops_rows):
        raise Refused(f"{name}: {after} rows cannot take the place of {before}")
    offset = table.schema().find_field("offset").field_id
    lower = [bound for file in removal.files if (bound := file.lower_bounds.get(offset))]
    upper = [bound for file in removal.files if (bound := file.upper_bounds.get(offset))]
    start, end = min(map(number, lower), default=0), max(map(number, upper), default=-1) + 1
    for file in replacement.added:
        if not start <= file.offset_first < file.offset_end <= end:
            raise Refused(f"{name}: {file.key} holds others than the offsets [{start}, {end})")
