"""What somebody from outside may change of a topic's table. Pure; loads no PyIceberg.

The log names the same files as the table, and compaction relies on its columns and its vector. So
only what is listed here passes: new columns, properties that nothing of ours depends on, and tags
and branches other than `main`. Updates are those of the Iceberg REST protocol, as decoded JSON,
which a stranger wrote: anything may be in them.
"""

from collections.abc import Iterable, Mapping
from typing import Final

EXTERNAL_WRITES_PROPERTY: Final = "lakelog.table.external-writes"
"""A table with `true` here takes snapshots from outside; it cannot be set from outside."""

MAIN: Final = "main"

_OWNED_PREFIXES: Final = ("lakelog.", "commit.")
_OWNED: Final = frozenset(
    (
        "format-version",
        "gc.enabled",
        "io-impl",
        "py-io-impl",
        "write.data.path",
        "write.folder-storage.path",
        "write.location-provider.impl",
        "write.metadata.delete-after-commit.enabled",
        "write.metadata.path",
        "write.metadata.previous-versions-max",
        "write.object-storage.enabled",
        "write.object-storage.path",
        "write.py-location-provider.impl",
    )
)
"""Properties that say where files go, who deletes them, or which code runs."""

Field = Mapping[str, object]


def refusal(
    updates: Iterable[Mapping[str, object]],
    *,
    properties: Mapping[str, str],
    fields: Iterable[Field],
) -> str | None:
    """Why these updates are not done, or None.

    `properties` are the table's, and `fields` those of its schema that have to stay as they are.
    """
    writes = properties.get(EXTERNAL_WRITES_PROPERTY) == "true"
    kept = tuple(fields)
    reasons = (_refusal(update, writes=writes, fields=kept) for update in updates)
    return next((reason for reason in reasons if reason is not None), None)


def _refusal(
    update: Mapping[str, object], *, writes: bool, fields: tuple[Field, ...]
) -> str | None:
    reason: str | None = None
    match update.get("action"):
        case "set-properties":
            changed = update.get("updates", update.get("updated"))
            reason = _owned(changed if isinstance(changed, Mapping) else {})
        case "remove-properties":
            removed = update.get("removals", update.get("removed"))
            reason = _owned(removed if isinstance(removed, list | tuple | set) else ())
        case "add-schema":
            reason = _schema(update.get("schema"), fields)
        case "set-current-schema":
            pass
        case "set-snapshot-ref" | "remove-snapshot-ref" as action:
            if update.get("ref-name") == MAIN and not (writes and action == "set-snapshot-ref"):
                reason = "the branch main belongs to the log"
        case "add-snapshot" | "remove-snapshots" as action:
            if not writes:
                reason = f"{action}: the log owns the table's files and makes its snapshots"
        case action:
            reason = f"{str(action)[:100]!r} is not done for the table of a topic"
    return reason


def _owned(names: Iterable[object]) -> str | None:
    for name in sorted(str(name) for name in names):
        if name.startswith(_OWNED_PREFIXES) or name in _OWNED:
            return f"the property {name[:100]!r} belongs to the log"
    return None


def _schema(schema: object, fields: tuple[Field, ...]) -> str | None:
    found = schema.get("fields") if isinstance(schema, Mapping) else None
    given = {field.get("id"): field for field in _mappings(found)}
    for field in fields:
        if _shape(given.get(field["id"])) != _shape(field):
            return f"the column {field['name']!r} belongs to the log and stays as it is"
    wanted = {field["id"] for field in fields}
    for number, field in given.items():
        if number not in wanted and field.get("required"):
            return f"the column {str(field.get('name'))[:100]!r} is required, but no file has it"
    return None


def _mappings(found: object) -> list[Field]:
    listed = found if isinstance(found, list | tuple) else ()
    return [
        field for field in listed if isinstance(field, Mapping) and isinstance(field.get("id"), int)
    ]


def _shape(field: Field | None) -> tuple[object, ...] | None:
    """What of a column counts: a comment may change."""
    if field is None:
        return None
    return field.get("name"), field.get("type"), bool(field.get("required"))
