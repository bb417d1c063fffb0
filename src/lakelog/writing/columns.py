"""Which columns of a data frame become records, as Spark's Kafka sink takes them. Pure.

`value` must be there; `key`, `headers`, `topic` and `partition` may be. As in Kafka's sink all
other columns are passed over, so that what was read from a topic can be written to one; but a
column that is nearly one of these, where that one is missing, is an error: what was meant would be
lost.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lakelog.config.named_options import BadOption
from lakelog.model.failures import Failure
from lakelog.writing.options import TOPIC

HEADERS: Final = "array<struct<key:string,value:binary>>"

TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
}
"""The columns of a record, with Spark's names of the types that they may have."""

OF_READS: Final = frozenset({"offset", "timestamp", "timestampType"})
"""Columns of a read that say nothing to a write."""

_NEARLY: Final = 0.8


class BadRow(Failure):
    """A row of which no record can be made; the text names its topic or column, and the reason."""


@dataclass(frozen=True, slots=True)
class Columns:
    """At which place of a row what stands; None where it is not given."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None


def checked_columns(columns: Iterable[tuple[str, str]], *, topic: str | None) -> Columns:
    """Where the columns, given as name and type, stand; raises `BadOption` with the name of one.

    With a `topic` for all rows a column of topics is not looked at.
    """
    listed = list(columns)
    places: dict[str, int] = {}
    for place, (name, kind) in enumerate(listed):
        wanted = TYPES.get(name)
        if wanted is None or name in places or (name == TOPIC and topic is not None):
            continue
        if kind not in wanted:
            raise BadOption(
                name, f"the column {name} has the type {kind}, but must be {' or '.join(wanted)}"
            )
        places[name] = place
    for name, _ in listed:
        _check_not_nearly(name, places, topic)
    if "value" not in places:
        raise BadOption("value", "there is no column value, which every record needs")
    if topic is None and TOPIC not in places:
        raise BadOption(
            TOPIC, f"there is no column {TOPIC}: set the option {TOPIC} to where all rows go"
        )
    return Columns(**places)


def _check_not_nearly(name: str, places: Mapping[str, int], topic: str | None) -> None:
    if name in TYPES or name in OF_READS:
        return
    missing = [one for one in TYPES if one not in places and (one != TOPIC or topic is None)]
    close = difflib.get_close_matches(name.lower(), missing, n=1, cutoff=_NEARLY)
    if close:
        raise BadOption(
            name,
            f"the column {name} would not be written: did you mean {close[0]}? If not, drop it",
        )
