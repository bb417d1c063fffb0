"""A change of a topic's table that somebody from outside sent, made with PyIceberg.

Rules:

- It goes through a catalog that is not the owner's, so that `guard` decides what passes.
- Schemas are numbered here, whatever number they were sent with: a number that stands twice makes
  a table unreadable for some engines.
- What the change makes of the table is made, written out and read back before anything is stored:
  a table that cannot be loaded any more must not come of it.
- The sender's requirements decide. Where they still hold, somebody else's commit in between (the
  log's own, mostly) is no conflict: the change is made again on what there is now.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from pydantic import TypeAdapter
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
)
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import (
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from lakelog.catalog.guard import Malformed
from lakelog.catalog.port import TableName
from lakelog.model.failures import Conflict, Failure, NotFound, OutcomeUnknown, Refused

T = TypeVar("T")
Sent = Mapping[str, object]
"""A requirement or an update as decoded JSON."""

_SAID_CHARACTERS_MAX: Final = 300
_LAST_ADDED: Final = -1
"""How an update names the schema that was added just before."""

_REQUIREMENTS: Final[TypeAdapter[tuple[TableRequirement, ...]]] = TypeAdapter(
    tuple[TableRequirement, ...]
)
_UPDATES: Final[TypeAdapter[tuple[TableUpdate, ...]]] = TypeAdapter(tuple[TableUpdate, ...])


def commit_from_outside(
    catalog: Catalog,
    name: TableName,
    requirements: Sequence[Sent],
    updates: Sequence[Sent],
    *,
    attempts: int,
) -> tuple[str, bytes]:
    """Make the change and return where the table's metadata is now, and the metadata itself.

    `Malformed`, `Refused`, `NotFound`, `Conflict` and `Unavailable` say that nothing changed,
    `OutcomeUnknown` that it may have.
    """
    needed = _parsed(_REQUIREMENTS, requirements)
    last: CommitFailedException | None = None
    for _ in range(attempts):
        try:
            table = catalog.load_table((name.namespace, name.table))
        except NoSuchTableError as error:
            raise NotFound(f"{name}: there is no such table") from error
        _check(name, table, needed)
        numbers = _schema_numbers(table.metadata)
        changes = _parsed(_UPDATES, numbered(updates, numbers))
        _rehearse(name, table, changes)
        same = _SameSchemas(uuid=table.metadata.table_uuid, numbers=numbers)
        try:
            response = _send(catalog, name, table, (*needed, same), changes)
        except CommitFailedException as error:
            last = error
            continue
        return response.metadata_location, response.metadata.model_dump_json().encode()
    raise Conflict(f"{name}: {_one_line(last)}") from last


def numbered(updates: Sequence[Sent], taken: Sequence[int]) -> list[Sent]:
    """The updates with schemas that follow the numbers which the table has already."""
    following = max(taken, default=-1) + 1
    given: dict[object, int] = {}
    made: list[Sent] = []
    for update in updates:
        schema = update.get("schema")
        if update.get("action") == "add-schema" and isinstance(schema, Mapping):
            number = schema.get("schema-id")
            if isinstance(number, int):
                given[number] = following
            made.append({**update, "schema": {**schema, "schema-id": following}})
            following += 1
        elif update.get("action") == "set-current-schema":
            number = update.get("schema-id")
            known = given.get(number, number) if isinstance(number, int) else number
            made.append({**update, "schema-id": number if number == _LAST_ADDED else known})
        else:
            made.append(update)
    return made


class _SameSchemas(AssertTableUUID):
    """The same table still, with the schemas after which the new ones were numbered."""

    numbers: tuple[int, ...]

    def validate(  # type: ignore[override]  # as PyIceberg's own requirements do
        self, base_metadata: TableMetadata | None
    ) -> None:
        """Refuse another table, and one that got another schema meanwhile."""
        super().validate(base_metadata)
        assert base_metadata is not None, "the requirement above refuses that"
        if _schema_numbers(base_metadata) != self.numbers:
            raise CommitFailedException("the table got another schema meanwhile")


def _schema_numbers(metadata: TableMetadata) -> tuple[int, ...]:
    return tuple(schema.schema_id for schema in metadata.schemas)


def _parsed(adapter: TypeAdapter[T], sent: Sequence[Sent]) -> T:
    try:
        return adapter.validate_json(json.dumps(list(sent)))
    except Exception as error:  # PyIceberg's validators fail in all ways on what a stranger sends
        raise Malformed(_one_line(error)) from error


def _check(name: TableName, table: Table, requirements: tuple[TableRequirement, ...]) -> None:
    try:
        for requirement in requirements:
            requirement.validate(table.metadata)
    except CommitFailedException as error:
        raise Conflict(f"{name}: {_one_line(error)}") from error


def _rehearse(name: TableName, table: Table, changes: tuple[TableUpdate, ...]) -> None:
    """Make the change without storing it; whatever goes wrong is the sender's fault."""
    try:
        made = update_table_metadata(
            table.metadata, changes, metadata_location=table.metadata_location
        )
        TableMetadataUtil.parse_raw(made.model_dump_json())
    except Exception as error:
        raise Malformed(f"{name}: {_one_line(error)}") from error


def _send(
    catalog: Catalog,
    name: TableName,
    table: Table,
    requirements: tuple[TableRequirement, ...],
    changes: tuple[TableUpdate, ...],
) -> CommitTableResponse:
    try:
        return catalog.commit_table(table, requirements, changes)
    except CommitFailedException:
        raise
    except CommitStateUnknownException as error:
        raise OutcomeUnknown(f"{name}: {_one_line(error)}") from error
    except NoSuchTableError as error:
        raise NotFound(f"{name}: there is no such table any more") from error
    except ForbiddenError as error:
        raise Refused(_one_line(error)) from error
    except Failure:
        raise
    except Exception as error:  # all but a clear no is unknown
        raise OutcomeUnknown(f"{name}: {_one_line(error)}") from error


def _one_line(error: object) -> str:
    said = " ".join(str(error).split())
    return said[:_SAID_CHARACTERS_MAX] or type(error).__name__
