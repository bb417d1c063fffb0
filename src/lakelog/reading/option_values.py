"""The values of read options: numbers, durations, JSON of partitions. Pure.

What is accepted is what Spark's Kafka source accepts; every refusal names the option.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from lakelog.config.named_options import (
    INT32_END,
    INT64_END,
    BadOption,
    boolean,
    positive,
    whole,
)
from lakelog.reading.request import EARLIEST, Place

__all__ = [
    "INT32_END",
    "INT64_END",
    "assigned",
    "boolean",
    "duration_ms",
    "numbers",
    "offsets",
    "positive",
    "whole",
]

_DURATION: Final = re.compile(r"([0-9]{1,18})\s*([a-z]*)", re.ASCII)
_UNITS_US: Final[Mapping[str, int]] = {
    "us": 1,
    "": 1_000,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
"""A number alone is milliseconds, as in Spark's own time strings."""

_Partition = Annotated[int, Meta(ge=0, le=INT32_END - 1)]
_Long = Annotated[int, Meta(ge=-INT64_END, le=INT64_END - 1)]


def duration_ms(option: str, text: str) -> int:
    """A time like `15m`, `10s` or `500ms`."""
    match = _DURATION.fullmatch(text.strip().lower())
    unit = None if match is None else _UNITS_US.get(match[2])
    if match is None or unit is None:
        units = ", ".join(name for name in _UNITS_US if name)
        raise BadOption(
            option, f"{option} is {text!r}, but must be a time like 15m; units are {units}"
        )
    return int(match[1]) * unit // 1_000


def assigned(option: str, text: str) -> tuple[Place, ...]:
    """Partitions as `{"topicA":[0,1],"topicB":[2]}`, each once, in order."""
    example = '{"topicA":[0,1],"topicB":[0,1]}'
    try:
        found = msgspec.json.decode(text, type=dict[str, list[_Partition]])
    except (msgspec.MsgspecError, UnicodeEncodeError) as reason:
        raise _not_json(option, text, example, reason) from reason
    return tuple(sorted({Place(topic, one) for topic, some in found.items() for one in some}))


def numbers(option: str, text: str, *, example: str) -> dict[Place, int]:
    """A number for every partition as `{"topicA":{"0":23}}`."""
    try:
        found = msgspec.json.decode(text, type=dict[str, dict[_Partition, _Long]])
    except (msgspec.MsgspecError, UnicodeEncodeError) as reason:
        raise _not_json(option, text, example, reason) from reason
    return {
        Place(topic, partition): number
        for topic, some in sorted(found.items())
        for partition, number in sorted(some.items())
    }


def offsets(option: str, text: str) -> dict[Place, int]:
    """An offset for every partition; -2 is the earliest, -1 the latest."""
    found = numbers(option, text, example='{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}')
    for place, offset in found.items():
        if offset < EARLIEST:
            raise BadOption(
                option,
                f"{option} says {offset} for {place}, but an offset is at least 0,"
                " or -1 for the latest, -2 for the earliest",
            )
    return found


def _not_json(option: str, text: str, example: str, reason: Exception) -> BadOption:
    shown = text if len(text) <= 200 else f"{text[:200]}…"
    return BadOption(option, f"{option} must be e.g. {example}, but is {shown!r}: {reason}")
