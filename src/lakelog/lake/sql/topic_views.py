"""SQL as text: the names in a query that mean topics, and the view that a topic is. Pure.

Names are found in the tree that DuckDB's own parser makes. A name that the query defines itself, by
WITH, is no topic within what it is defined for. As in DuckDB, such a definition sees those before
it and not itself, unless it is recursive: WITH orders AS (SELECT … FROM orders) reads the topic
once. Names in a schema other than `main` are DuckDB's.

A topic is its data files, scanned by DuckDB itself, and all that is in none, which comes as Arrow.
DuckDB reads of a file only the columns and row groups that a statement needs.

The columns of a file hold a record's time within the years 1 to 9999; `raw` holds any other, and is
null in all ordinary rows. The time of a row is therefore an expression, and no row group can be
ruled out by it. Where a statement speaks of times, a file is scanned twice instead: rows without
`raw`, whose time is a plain column, and the few with it. That is much faster for a few minutes out
of days, and a little slower where times do not matter; rows are the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lakelog.index.entries import Entry
from lakelog.lake.read.range_plan import PlannedRange
from lakelog.records.header import LOG_APPEND_TIME_BIT
from lakelog.streams.objects import FileKind

_LISTINGS: Final = ('"tables"', "__show_tables_expanded")
"""What SHOW TABLES and SHOW ALL TABLES look at."""


def names_in(tree: object) -> tuple[str, ...]:
    """Every name that means a topic, once, in order."""
    return tuple(sorted(set(_names(tree, frozenset()))))


def lists_topics(tree: object) -> bool:
    """Whether the query shows which tables there are."""
    return any(
        one.get("type") == "SHOW_REF" and one.get("table_name") in _LISTINGS for one in _nodes(tree)
    )


def _names(tree: object, defined: frozenset[str]) -> Iterator[str]:
    if isinstance(tree, list):
        for one in tree:
            yield from _names(one, defined)
    if not isinstance(tree, Mapping):
        return
    name = tree.get("table_name")
    if tree.get("type") == "BASE_TABLE" and isinstance(name, str):
        own = tree.get("schema_name") or tree.get("catalog_name")
        if own in ("", None, "main") and not (own != "main" and name.lower() in defined):
            yield name
        return
    for definition, query in _definitions(tree):
        itself = frozenset((definition,)) if _is_recursive(query) else frozenset()
        yield from _names(query, defined | itself)
        defined |= {definition}
    for key, one in tree.items():
        if key != "cte_map":
            yield from _names(one, defined)


def _definitions(tree: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """What WITH defines at this node, in order."""
    held = tree.get("cte_map")
    pairs = held.get("map") if isinstance(held, Mapping) else None
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, Mapping):
            yield str(pair.get("key")).lower(), pair.get("value")


def _is_recursive(query: object) -> bool:
    return any(one.get("type") == "RECURSIVE_CTE_NODE" for one in _nodes(query))


def _nodes(tree: object) -> Iterator[Mapping[str, object]]:
    if isinstance(tree, Mapping):
        yield tree
        for one in tree.values():
            yield from _nodes(one)
    elif isinstance(tree, list):
        for one in tree:
            yield from _nodes(one)


COLUMNS: Final[Mapping[str, str]] = {
    "key": "BLOB",
    "value": "BLOB",
    "topic": "VARCHAR",
    "partition": "INTEGER",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMPTZ",
    "timestampType": "INTEGER",
    "headers": "STRUCT(key VARCHAR, value BLOB)[]",
}
"""The columns of a topic, in the order of Spark's source, with their types in DuckDB."""

TAIL_COLUMNS: Final = (
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "key",
    "value",
    "headers",
)
"""What the Arrow side gives: DuckDB counts rows by the first column, so that is a small one."""

_MS_MAX: Final = ((1 << 63) - 1) // 1000
"""The milliseconds whose microseconds 64 bits hold, in either direction."""

_RAW_MS: Final = (
    "(('0x' || hex(raw[1:8]))::UBIGINT::HUGEINT"
    " - CASE WHEN raw[1:1] >= '\\x80'::BLOB THEN 18446744073709551616::HUGEINT ELSE 0 END)"
)
_EXACT: Final = (
    f"make_timestamptz(greatest(least({_RAW_MS}, {_MS_MAX}), -{_MS_MAX})::BIGINT * 1000)"
)
"""The time that `raw` begins with, as a read gives it: a signed number of milliseconds."""


@dataclass(frozen=True, slots=True)
class DataFileRange:
    """A data file of which only the offsets [start, end) of its partition are meant."""

    path: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicParts:
    """Where the rows of a topic are: in these files, and in the ranges that are in none."""

    whole: tuple[str, ...]
    partial: tuple[DataFileRange, ...]
    tail: tuple[PlannedRange, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """All files."""
        return (*self.whole, *(one.path for one in self.partial))


def topic_parts(ranges: Iterable[PlannedRange], directory: str | None) -> TopicParts:
    """The ranges of a topic, taken apart; without a directory DuckDB scans no file.

    What a path of the file system means to DuckDB's patterns is not scanned by it either.
    """
    if directory is None or any(mark in directory for mark in "*?["):
        return TopicParts((), (), tuple(ranges))
    whole: list[str] = []
    partial: list[DataFileRange] = []
    tail: list[PlannedRange] = []
    for one in ranges:
        position = one.pinned.start
        for entry in one.entries:
            start, end = max(entry.start, one.pinned.start), min(entry.end, one.pinned.end)
            if entry.kind is not FileKind.PARQUET or start >= end:
                continue
            path = f"{directory}/{entry.key}"
            if _is_whole(entry, one):
                whole.append(path)
            else:
                partial.append(DataFileRange(path, one.pinned.partition, start, end))
            if position < start:
                tail.append(one.cut(position, start))
            position = end
        if position < one.pinned.end:
            tail.append(one.cut(position, one.pinned.end))
    return TopicParts(tuple(whole), tuple(partial), tuple(tail))


def _is_whole(entry: Entry, within: PlannedRange) -> bool:
    """Whether all rows of the file are meant; the first of a trimmed log may have more than that.

    A file that was being made while the log was trimmed begins before its entry.
    """
    pinned = within.pinned
    untrimmed = entry.start > pinned.start or entry.start == pinned.start == 0
    return untrimmed and entry.end <= pinned.end


def view(topic: str, tail: str, parts: TopicParts, *, by_time: bool) -> str:
    """The statement that makes the topic a view over the relation `tail` and the files."""
    named = [f"{text(topic)} AS topic" if one == "topic" else quoted(one) for one in COLUMNS]
    selects = [_select(named, quoted(tail))]
    if parts.whole:
        selects += _selects(topic, _scan(parts.whole), by_time=by_time)
    if parts.partial:
        bounds = ", ".join(f"({one.partition}, {one.start}, {one.end})" for one in _bounds(parts))
        joined = (
            f"{_scan([one.path for one in parts.partial])} AS file"
            f" JOIN (VALUES {bounds}) AS bounds (partition, start, stop)"
            ' ON file.partition = bounds.partition AND file."offset" >= bounds.start'
            ' AND file."offset" < bounds.stop'
        )
        selects += _selects(topic, f"({_select(['file.*'], joined)})", by_time=by_time)
    return f"CREATE VIEW {quoted(topic)} AS {' UNION ALL '.join(selects)}"


def empty_view(topic: str) -> str:
    """The statement that makes the topic a view without rows, to be listed."""
    columns = ", ".join(f"NULL::{kind} AS {quoted(name)}" for name, kind in COLUMNS.items())
    return f"CREATE VIEW {quoted(topic)} AS SELECT {columns} WHERE false"


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def _selects(topic: str, rows: str, *, by_time: bool) -> list[str]:
    """The rows of files as the columns of a topic."""
    if by_time:
        return [
            _select(_columns(topic, "timestamp"), rows) + " WHERE raw IS NULL",
            _select(_columns(topic, _EXACT), rows) + " WHERE raw IS NOT NULL",
        ]
    time = f"CASE WHEN raw IS NULL THEN timestamp ELSE {_EXACT} END"
    return [_select(_columns(topic, time), rows)]


def _columns(topic: str, time: str) -> list[str]:
    kind = f"(attributes & {LOG_APPEND_TIME_BIT} <> 0)::INTEGER"
    headers = "CASE WHEN len(headers) > 0 THEN headers END"
    return ["key", "value", text(topic), "partition", quoted("offset"), time, kind, headers]


def _select(columns: Sequence[str], rows: str) -> str:
    return " ".join(("SELECT", ", ".join(columns), "FROM", rows))


def _scan(paths: Sequence[str]) -> str:
    return f"read_parquet([{', '.join(map(text, paths))}], hive_partitioning = false)"


def _bounds(parts: TopicParts) -> list[DataFileRange]:
    """One for each partition: the files of a partition adjoin, or they are first and last."""
    by_partition: dict[int, DataFileRange] = {}
    for one in parts.partial:
        seen = by_partition.get(one.partition, one)
        by_partition[one.partition] = DataFileRange(
            one.path, one.partition, min(seen.start, one.start), max(seen.end, one.end)
        )
    return list(by_partition.values())
