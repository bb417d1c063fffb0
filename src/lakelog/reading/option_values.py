"""The values of read options: numbers, durations, JSON of partitions. Pure.

What is accepted is what Spark's Kafka source accepts; every refusal names the option.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from lakelog.reading.request import EARLIEST, BadOption, Place

INT32_END: Final = 1 << 31
INT64_END: Final = 1 << 63

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
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


def boolean(option: str, text: str) -> bool:
    """True or false, in any case."""
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise BadOption(option, f"{option} is {text!r}, but must be true or false")
    return found


def positive(option: str, text: str, *, end: int = INT64_END) -> int:
    """A whole number above zero and below `end`."""
    number = whole(option, text)
    if not 0 < number < end:
        raise BadOption(option, f"{option} is {text!r}, but must be a number from 1 to {end - 1}")
    return number


def whole(option: str, text: str) -> int:
    """A whole number of 64 bits."""
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped) is not None:
        number = int(stripped)
        if -INT64_END <= number < INT64_END:
            return number
    raise BadOption(option, f"{option} is {text!r}, but must be one whole number")


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


def servers(option: str, text: str) -> tuple[str, ...]:
    """The HTTP ports of brokers as `http://HOST:PORT`, with commas between them, as host:port."""
    found = []
    for url in filter(None, (one.strip() for one in text.split(","))):
        address = _address(url)
        if address is None:
            raise BadOption(
                option,
                f"{option} names {url!r}, but takes http://HOST:PORT of a broker's HTTP port",
            )
        found.append(address)
    if not found:
        raise BadOption(option, f"{option} is empty, but must name http://HOST:PORT")
    return tuple(found)


def _address(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    bare = not (parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme != "http" or not parts.hostname or not bare:
        return None
    return parts.netloc if port is not None else f"{parts.netloc}:80"


def _not_json(option: str, text: str, example: str, reason: Exception) -> BadOption:
    shown = text if len(text) <= 200 else f"{text[:200]}…"
    return BadOption(option, f"{option} must be e.g. {example}, but is {shown!r}: {reason}")
