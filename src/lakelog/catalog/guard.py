"""What somebody from outside may change of a topic's table. Pure; loads no PyIceberg.

The log names the same files as the table, and compaction relies on its columns and its vector. So
only what is listed here passes: new columns, properties that nothing of ours depends on, and tags
and branches other than `main`. Updates are those of the Iceberg REST protocol, as decoded JSON,
which a stranger wrote: anything may be in them. What one engine would take and another could then
not read any more (an id twice, a column of format version 3) is refused too.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from lakelog.model.failures import Failure

EXTERNAL_WRITES_PROPERTY: Final = "lakelog.table.external-writes"
"""A table with `true` here takes snapshots from outside; it cannot be set from outside."""

MAIN: Final = "main"
FORMAT_VERSION: Final = 2
COLUMN_ID_MAX: Final = 1_000_000
"""Engines keep the ids at the end of 32 bits for themselves, and new columns need room."""

COLUMNS_MAX: Final = 2_000

_OWNED_PREFIXES: Final = ("lakelog.", "commit.")
_ACCESS_PREFIXES: Final = (
    *("adls.", "client.", "encryption.", "gcs.", "gs.", "hdfs.", "header.", "hf.", "oss."),
    *("oauth", "rest.", "s3.", "scan-planning", "sigv4"),
)
"""Readers may take these of a table for settings of theirs, and send keys to whoever is named."""

_OWNED: Final = frozenset(
    (
        "format-version",
        "gc.enabled",
        "io-impl",
        "py-io-impl",
        "schema.name-mapping.default",
        "token",
        "uri",
        "warehouse",
        "write.data.path",
        "write.folder-storage.path",
        "write.location-provider.impl",
        "write.metadata.compression-codec",
        "write.metadata.delete-after-commit.enabled",
        "write.metadata.path",
        "write.metadata.previous-versions-max",
        "write.object-storage.enabled",
        "write.object-storage.path",
        "write.py-location-provider.impl",
    )
)
"""Properties that say where files go, how they are read, who deletes them, or which code runs."""

_PRIMITIVES: Final = frozenset(
    (
        *("boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz"),
        *("string", "uuid", "binary"),
    )
)
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)", re.ASCII)
_FIXED: Final = re.compile(r"fixed\[[1-9]\d{0,8}\]", re.ASCII)
_DECIMAL_DIGITS_MAX: Final = 38
_AGES: Final = ("max-ref-age-ms", "max-snapshot-age-ms")
_COUNT: Final = "min-snapshots-to-keep"

Field = Mapping[str, object]


class Malformed(Failure):
    """What was sent is no change of this table; nothing was written, and a repeat fails again."""


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
    try:
        return next((reason for reason in reasons if reason is not None), None)
    except RecursionError:
        return "the columns are nested too deeply"


def _refusal(
    update: Mapping[str, object], *, writes: bool, fields: tuple[Field, ...]
) -> str | None:
    reason: str | None = None
    match update.get("action"):
        case "set-properties":
            changed = update.get("updates", update.get("updated"))
            reason = _owned(changed if isinstance(changed, Mapping) else ())
        case "remove-properties":
            removed = update.get("removals", update.get("removed"))
            reason = _owned(removed if isinstance(removed, list | tuple | set) else ())
        case "add-schema":
            reason = _schema(update.get("schema"), fields)
        case "set-current-schema":
            pass
        case "upgrade-format-version":
            if update.get("format-version") != FORMAT_VERSION:
                reason = f"the tables of topics stay at format version {FORMAT_VERSION}"
        case "set-snapshot-ref" | "remove-snapshot-ref" as action:
            reason = _reference(update, writes=writes and action == "set-snapshot-ref")
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
        if name.startswith(_ACCESS_PREFIXES):
            return f"the property {name[:100]!r} says how files are reached; set it in the catalog"
    return None


def _reference(update: Mapping[str, object], *, writes: bool) -> str | None:
    """What engines agree on; a branch with an age of 0 makes a table unreadable for some."""
    if update.get("ref-name") == MAIN and not writes:
        return "the branch main belongs to the log"
    for setting in (*_AGES, _COUNT):
        value = update.get(setting)
        if value is not None and not _is_number(value, least=1, most=(1 << 63) - 1):
            return f"{setting} of a branch or tag is a positive number"
    count = update.get(_COUNT)
    if count is not None and (
        update.get("type") != "branch" or not _is_number(count, least=1, most=(1 << 31) - 1)
    ):
        return f"{_COUNT} is a number of snapshots of a branch"
    if update.get("type") == "tag" and update.get(_AGES[1]) is not None:
        return f"{_AGES[1]} is for branches"
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
    return _readable(found)


def _readable(found: object) -> str | None:
    """Why some engine could not read a table with these columns, or None."""
    seen: set[object] = set()
    try:
        for number in _column_ids(found):
            if not _is_number(number, least=1, most=COLUMN_ID_MAX):
                return f"the id of a column is a number from 1 to {COLUMN_ID_MAX}"
            if number in seen:
                return f"the id {number} stands at two columns"
            seen.add(number)
            if len(seen) > COLUMNS_MAX:
                return f"a table has {COLUMNS_MAX} columns at most, nested ones included"
    except _UnreadableError as error:
        return str(error)
    return None


class _UnreadableError(Exception):
    """Columns that not every engine can read."""


def _column_ids(fields: object) -> Iterator[object]:
    """The ids of a struct's fields and of all that is in them."""
    if not isinstance(fields, list | tuple):
        raise _UnreadableError("a schema has a list of columns")
    names: set[str] = set()
    for field in fields:
        name = field.get("name") if isinstance(field, Mapping) else None
        if not isinstance(name, str) or not name or not name.isprintable():
            raise _UnreadableError("a column has an id, a name and a type")
        if "." in name:
            raise _UnreadableError(f"the name {name[:100]!r} reads like a column within a column")
        # Spark and DuckDB do not tell names apart that differ in case alone.
        if name.casefold() in names:
            raise _UnreadableError(f"two columns are called {name[:100]!r}")
        if any(field.get(f"{when}-default") is not None for when in ("initial", "write")):
            raise _UnreadableError(f"the column {name[:100]!r} has a default: that is version 3")
        names.add(name.casefold())
        yield field.get("id")
        yield from _nested_ids(field.get("type"))


def _nested_ids(kind: object) -> Iterator[object]:
    if isinstance(kind, str):
        if not _is_type(kind):
            raise _UnreadableError(f"{kind[:100]!r} is no type of format version {FORMAT_VERSION}")
        return
    if not isinstance(kind, Mapping):
        raise _UnreadableError("a column has an id, a name and a type")
    match kind.get("type"):
        case "struct":
            yield from _column_ids(kind.get("fields"))
        case "list":
            yield kind.get("element-id")
            yield from _nested_ids(kind.get("element"))
        case "map":
            yield kind.get("key-id")
            yield from _nested_ids(kind.get("key"))
            yield kind.get("value-id")
            yield from _nested_ids(kind.get("value"))
        case other:
            raise _UnreadableError(f"{str(other)[:100]!r} is no type of a column")


def _is_type(name: str) -> bool:
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None:
        digits, behind = int(decimal[1]), int(decimal[2])
        return 1 <= digits <= _DECIMAL_DIGITS_MAX and behind <= digits
    return name in _PRIMITIVES or _FIXED.fullmatch(name) is not None


def _is_number(value: object, *, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _mappings(found: object) -> list[Field]:
    listed = found if isinstance(found, list | tuple) else ()
    return [
        field for field in listed if isinstance(field, Mapping) and isinstance(field.get("id"), int)
    ]


def _shape(field: Field | None) -> tuple[object, ...] | None:
    """What of a column counts: a comment may change."""
    if field is None:
        return None
    return field.get("name"), _plain(field.get("type")), bool(field.get("required"))


def _plain(kind: object) -> object:
    """A type without the comments of what is in it."""
    if isinstance(kind, Mapping):
        return {name: _plain(part) for name, part in kind.items() if name != "doc"}
    if isinstance(kind, list | tuple):
        return [_plain(part) for part in kind]
    return kind
