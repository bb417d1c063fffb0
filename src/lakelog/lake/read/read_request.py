"""What to read, as values: topics, from where to where, columns and conditions. Pure.

A request says nothing of the world yet: which partitions there are and which offsets they have is
found out when it is planned (`lakelog.lake.read.range_plan`).

The columns are those of Spark's Kafka source, or any of them in any order. Headers come only where
somebody asked for them, by `includeHeaders` or by name; a record without headers has null there.
Types are checked by the names that Spark writes for them.

A condition is a column, an operator and a value, as Arrow's own readers take them; all of them must
hold. What is pruned by them (`Filters`) is only what cannot hold such a row: the rows that are left
are still to be looked at, one by one.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from lakelog.config.named_options import BadOption, ClusterOptions

if TYPE_CHECKING:
    import pyarrow as pa

EARLIEST: Final = -2
LATEST: Final = -1
"""What stands for the two ends of a partition where an offset is expected."""

MAX_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000


class PartitionName(NamedTuple):
    """A partition of a topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions and no others."""

    places: tuple[PartitionName, ...]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matching:
    """All partitions of the topics in whose names the pattern is found."""

    pattern: str


Topics: TypeAlias = Assigned | Subscribed | Matching


class Edge(Enum):
    """One end of every partition."""

    EARLIEST = "earliest"
    LATEST = "latest"


class TimestampStrategy(Enum):
    """What to do where no record is as late as the timestamp to begin at."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for every partition; `EARLIEST` and `LATEST` stand for its ends."""

    offsets: Mapping[PartitionName, int]


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The first record at or after a time, for every partition."""

    times_ms: Mapping[PartitionName, int]
    missing: TimestampStrategy = TimestampStrategy.ERROR


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record at or after one time, in whatever partitions there are."""

    time_ms: int
    missing: TimestampStrategy = TimestampStrategy.ERROR


Limit: TypeAlias = Edge | AtOffsets | AtTimestamps | AtTimestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What the options of one read say."""

    topics: Topics
    starting: Limit
    ending: Limit
    is_stream: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    fail_on_data_loss: bool = True
    include_headers: bool = False
    connection: ClusterOptions = field(default_factory=ClusterOptions)
    notes: tuple[str, ...] = ()
    """What was given and has no meaning here, each with the reason."""


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
    by_lower = {known.lower(): known for known in TYPES}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[close[0]]}?" if close else f"; there are {', '.join(TYPES)}"


Condition: TypeAlias = tuple[str, str, object]
"""Column, operator, value: ("offset", ">=", 5)."""

OPERATORS: Final = ("=", "==", "!=", "<", "<=", ">", ">=", "in", "not in")
OFFSET_END: Final = 1 << 63

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Filters:
    """Where rows can be that fulfil all conditions; None: everywhere."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_start: int = 0
    partition_end: int = OFFSET_END
    offset_start: int = 0
    offset_end: int = OFFSET_END
    timestamp_start_us: int | None = None

    def holds(self, topic: str, partition: int) -> bool:
        """Whether this partition can have such a row."""
        named = self.topics is None or topic in self.topics
        numbered = self.partitions is None or partition in self.partitions
        return named and numbered and self.partition_start <= partition < self.partition_end


EVERYTHING: Final = Filters()


def filters_of(conditions: Sequence[Condition]) -> Filters:
    """What these conditions rule out; those that say nothing about the index rule out nothing."""
    filters = EVERYTHING
    for column, operator, value in conditions:
        if column == "topic":
            filters = _narrowed_topics(filters, operator, value)
        elif column == "timestamp":
            filters = _narrowed_time(filters, operator, value)
        elif column in ("partition", "offset"):
            filters = _narrowed_numbers(filters, column, operator, value)
    return filters


def checked_conditions(where: Sequence[Sequence[object]]) -> tuple[Condition, ...]:
    """The conditions, if they are some; raises `BadOption`."""
    conditions: list[Condition] = []
    for condition in where:
        if len(condition) != 3 or condition[0] not in TYPES:
            raise BadOption("where", f"{condition!r} is not a column, an operator and a value")
        column, operator, value = condition
        if operator not in OPERATORS:
            raise BadOption("where", f"{operator!r} is not one of {', '.join(OPERATORS)}")
        if isinstance(value, datetime) and value.tzinfo is None:
            raise BadOption("where", f"{value!r} needs a time zone, as datetime.UTC")
        conditions.append((str(column), str(operator), value))
    return tuple(conditions)


def _narrowed_topics(filters: Filters, operator: str, value: object) -> Filters:
    if operator in ("=", "==") and isinstance(value, str):
        named = frozenset((value,))
    elif operator == "in" and isinstance(value, list | tuple | set | frozenset):
        named = frozenset(name for name in value if isinstance(name, str))
    else:
        return filters
    return replace(filters, topics=named if filters.topics is None else filters.topics & named)


def _narrowed_numbers(filters: Filters, column: str, operator: str, value: object) -> Filters:
    if operator == "in" and isinstance(value, list | tuple | set | frozenset):
        if not all(type(number) is int for number in value):
            return filters
        numbers = frozenset(number for number in value if isinstance(number, int))
        if column == "partition":
            both = numbers if filters.partitions is None else filters.partitions & numbers
            filters = replace(filters, partitions=both)
        least, most = min(numbers, default=0), max(numbers, default=-1)
        return _bounded(filters, column, least, most + 1)
    if type(value) is not int:
        return filters  # 1.5 and True are compared row by row
    start, end = _interval(operator, value)
    return _bounded(filters, column, start, end)


def _interval(operator: str, value: int) -> tuple[int, int]:
    """The numbers that stand in this relation to the value."""
    match operator:
        case "=" | "==":
            return value, value + 1
        case ">":
            return value + 1, OFFSET_END
        case ">=":
            return value, OFFSET_END
        case "<":
            return 0, value
        case "<=":
            return 0, value + 1
        case _:
            return 0, OFFSET_END


def _bounded(found: Filters, column: str, start: int, end: int) -> Filters:
    if column == "partition":
        return replace(
            found,
            partition_start=max(found.partition_start, start),
            partition_end=min(found.partition_end, end),
        )
    return replace(
        found,
        offset_start=max(found.offset_start, start),
        offset_end=min(found.offset_end, end),
    )


def _narrowed_time(found: Filters, operator: str, value: object) -> Filters:
    """The index knows the greatest timestamp of an entry, so only a lower bound rules out some."""
    if operator not in ("=", "==", ">", ">=") or not isinstance(value, datetime):
        return found
    if value.tzinfo is None:
        return found  # of which zone, only the engine that compares knows
    start_us = (value - _EPOCH) // _MICROSECOND
    if found.timestamp_start_us is not None:
        start_us = max(found.timestamp_start_us, start_us)
    return replace(found, timestamp_start_us=start_us)
