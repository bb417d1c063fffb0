"""Ranges as the text of an option, so that the data source reads just these. Pure.

Offsets in Kafka's JSON name one range of a partition, by names that may come to mean another topic.
These name any number, by their streams. Only `lakelog.spark.frames` sets the option.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from lakelog.config.named_options import BadOption
from lakelog.index.ports import PinnedRange

RANGES: Final = "lakelog.ranges"

_Topics = list[tuple[str, bytes, list[tuple[int, int, int, int]]]]


def encode_ranges(ranges: Iterable[PinnedRange]) -> str:
    """The ranges as text; each topic is named once."""
    topics: dict[tuple[str, bytes], list[tuple[int, int, int, int]]] = {}
    for one in ranges:
        place = (one.partition, one.stream, one.start, one.end)
        topics.setdefault((one.topic, one.topic_id), []).append(place)
    found: _Topics = [(*topic, places) for topic, places in topics.items()]
    return msgspec.json.encode(found).decode()


def decode_ranges(text: str) -> tuple[PinnedRange, ...]:
    """The ranges of a text; raises `BadOption`."""
    try:
        topics = msgspec.json.decode(text, type=_Topics)
    except msgspec.MsgspecError as reason:
        raise BadOption(RANGES, f"{RANGES} cannot be read: {reason}") from reason
    return tuple(
        PinnedRange(name, topic_id, *place) for name, topic_id, places in topics for place in places
    )
