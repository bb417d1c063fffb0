"""Offsets of a stream as Spark keeps them in a checkpoint: Kafka's JSON, and the topics' ids. Pure.

`{"t": {"0": 23}, "lakelog:topic-ids": {"t": "6f9c…"}}` says where each partition goes on, and which
topic was meant by a name: one that was deleted and made again has another id. Without the last key
it is what Spark's Kafka source writes, so a checkpoint of that can be continued.

Spark compares offsets as text, so the same offsets always come in the same order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from lakelog.config.named_options import INT32_END, INT64_END
from lakelog.lake.read.read_request import PartitionName
from lakelog.model.failures import Refused

TOPIC_IDS: Final = "lakelog:topic-ids"
"""Where the ids stand; no topic can have this name."""

Document: TypeAlias = Mapping[str, Mapping[str, int | str]]
"""Offsets as Spark hands them over and back."""

_TopicId = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
_Offsets = dict[
    Annotated[int, Meta(ge=0, lt=INT32_END)], Annotated[int, Meta(ge=0, le=INT64_END - 1)]
]


@dataclass(frozen=True, slots=True)
class Vector:
    """The next offset of every partition, and the id of every topic as far as it is known."""

    offsets: Mapping[PartitionName, int]
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)


def parse_vector(document: Document) -> Vector:
    """The offsets of a checkpoint; raises `Refused` when they are none."""
    try:
        given = {topic: some for topic, some in document.items() if topic != TOPIC_IDS}
        found = msgspec.convert(given, dict[str, _Offsets], str_keys=True)
        named = msgspec.convert(document.get(TOPIC_IDS, {}), dict[str, _TopicId])
        ids = {topic: bytes.fromhex(text) for topic, text in named.items()}
    except (AttributeError, ValueError) as reason:
        raise Refused(
            f"the checkpoint holds {_shown(document)}, which are not offsets of topics: {reason}"
        ) from reason
    offsets = {
        PartitionName(topic, one): at for topic, some in found.items() for one, at in some.items()
    }
    return Vector(offsets, ids)


def document_of(vector: Vector) -> Document:
    """The offsets for a checkpoint."""
    document: dict[str, dict[str, int | str]] = {}
    for place, offset in sorted(vector.offsets.items()):
        document.setdefault(place.topic, {})[str(place.partition)] = offset
    ids = sorted(vector.topic_ids.items())
    document[TOPIC_IDS] = {topic: one.hex() for topic, one in ids}
    return document


def _shown(document: object) -> str:
    text = repr(document)
    return text if len(text) <= 200 else f"{text[:200]}…"
