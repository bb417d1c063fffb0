"""Conditions on rows, and what of the index they rule out. Pure.

A condition is a column, an operator and a value, as Arrow's own readers take them; all of them must
hold. What is pruned by them is only what cannot hold such a row: the rows that are left are still
to be looked at, one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from lakelog.reading.request import BadOption
from lakelog.reading.schema import TYPES

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
    found = EVERYTHING
    for column, operator, value in conditions:
        if column == "topic":
            found = _narrowed_topics(found, operator, value)
        elif column == "timestamp":
            found = _narrowed_time(found, operator, value)
        elif column in ("partition", "offset"):
            found = _narrowed_numbers(found, column, operator, value)
    return found


def checked_conditions(where: Sequence[Sequence[object]]) -> tuple[Condition, ...]:
    """The conditions, if they are some; raises `BadOption`."""
    found: list[Condition] = []
    for one in where:
        if len(one) != 3 or one[0] not in TYPES:
            raise BadOption("where", f"{one!r} is not a column, an operator and a value")
        column, operator, value = one
        if operator not in OPERATORS:
            raise BadOption("where", f"{operator!r} is not one of {', '.join(OPERATORS)}")
        if isinstance(value, datetime) and value.tzinfo is None:
            raise BadOption("where", f"{value!r} needs a time zone, as datetime.UTC")
        found.append((str(column), str(operator), value))
    return tuple(found)


def _narrowed_topics(found: Filters, operator: str, value: object) -> Filters:
    if operator in ("=", "==") and isinstance(value, str):
        named = frozenset((value,))
    elif operator == "in" and isinstance(value, list | tuple | set | frozenset):
        named = frozenset(one for one in value if isinstance(one, str))
    else:
        return found
    return replace(found, topics=named if found.topics is None else found.topics & named)


def _narrowed_numbers(found: Filters, column: str, operator: str, value: object) -> Filters:
    if operator == "in" and isinstance(value, list | tuple | set | frozenset):
        if not all(type(one) is int for one in value):
            return found
        numbers = frozenset(one for one in value if isinstance(one, int))
        if column == "partition":
            both = numbers if found.partitions is None else found.partitions & numbers
            found = replace(found, partitions=both)
        least, most = min(numbers, default=0), max(numbers, default=-1)
        return _bounded(found, column, least, most + 1)
    if type(value) is not int:
        return found  # 1.5 and True are compared row by row
    start, end = _interval(operator, value)
    return _bounded(found, column, start, end)


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
