"""The columns of a read: those of Spark's Kafka source, or any of them in any order. Pure.

Headers come only where somebody asked for them, by `includeHeaders` or by name; a record without
headers has null there. Types are checked by the names that Spark writes for them.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from lakelog.reading.request import BadOption

if TYPE_CHECKING:
    import pyarrow as pa

HEADERS: Final = "headers"
SCHEMA: Final = "schema"

TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("binary",),
    "value": ("binary",),
    "topic": ("string",),
    "partition": ("int", "integer"),
    "offset": ("bigint", "long"),
    "timestamp": ("timestamp",),
    "timestampType": ("int", "integer"),
    HEADERS: ("array<struct<key:string,value:binary>>",),
}
"""Every column in the order of Spark's source, with what its type is called."""


def default_columns(*, include_headers: bool) -> tuple[str, ...]:
    """The columns of a read that names none."""
    return tuple(name for name in TYPES if include_headers or name != HEADERS)


def chosen_columns(names: Sequence[str], *, option: str = "columns") -> tuple[str, ...]:
    """These columns, checked; raises `BadOption`."""
    if not names:
        raise BadOption(option, f"{option} names no column")
    for name in names:
        if name not in TYPES:
            raise BadOption(option, f"{option} names {name!r}, which is no column{_hint(name)}")
    twice = sorted(name for name in TYPES if names.count(name) > 1)
    if twice:
        raise BadOption(option, f"{option} names {twice[0]!r} twice")
    return tuple(names)


def checked_schema(fields: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The columns of a schema given by a user, as names and the names of their types."""
    given = list(fields)
    columns = chosen_columns([name for name, _ in given], option=SCHEMA)
    for name, kind in given:
        written = "".join(kind.lower().split())
        if written not in TYPES[name]:
            raise BadOption(SCHEMA, f"{name} has the type {TYPES[name][0]}, not {kind}")
    return columns


def spark_ddl(columns: Sequence[str]) -> str:
    """The columns as Spark reads a schema."""
    return ", ".join(f"{name} {TYPES[name][0]}" for name in columns)


def arrow_schema(columns: Sequence[str]) -> "pa.Schema":
    """The columns as Arrow has them, with exactly the types that Spark expects."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    kinds = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        HEADERS: pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(name, kinds[name]) for name in columns])


def _hint(name: str) -> str:
    by_lower = {one.lower(): one for one in TYPES}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[close[0]]}?" if close else f"; there are {', '.join(TYPES)}"
