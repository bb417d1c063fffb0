"""A topic as its key in the metadata store holds it. Pure.

A topic's partitions are streams whose ids were given out in blocks; a span is one block, so that
ten thousand partitions are one small key. The states of a key and what moves it on (rule 21, T1):

    absent -> CREATING -> LIVE -> DELETING -> absent
                  LIVE + growing -> LIVE with one more span

Only LIVE topics can be seen, without what is still growing. CREATING, growing and DELETING are
decisions that are written down before they are carried out, so that anyone who finds one can carry
it out; all that is between two states may be done twice.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import msgspec

from lakelog.clock import Entropy
from lakelog.meta.port import VALUE_BYTES_MAX
from lakelog.model.failures import Corrupt
from lakelog.model.ids import StreamId, TopicId
from lakelog.topics.failures import InvalidConfig, TooLarge
from lakelog.topics.settings import NONE_SET, TopicSettings, in_effect

KEY_FORMAT: Final = 1
"""The layout of a topic's key; a greater one was written by a newer version."""


class TopicState(Enum):
    """What a topic's key says about it."""

    CREATING = "creating"
    LIVE = "live"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class StreamSpan:
    """Partitions [first_partition, first_partition + count) are that many streams in a row."""

    first_partition: int
    first_stream: int
    count: int

    def __post_init__(self) -> None:
        assert self.count > 0, self
        assert self.first_partition >= 0, self
        assert self.first_stream > 0, self

    @property
    def partitions_end(self) -> int:
        """One more than the last partition of the span."""
        return self.first_partition + self.count

    def numbers(self) -> tuple[int, int, int]:
        """As a key holds it."""
        return self.first_partition, self.first_stream, self.count

    def streams(self) -> range:
        """The ids of its streams."""
        return range(self.first_stream, self.first_stream + self.count)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic at one version of its key."""

    name: str
    id: TopicId
    spans: tuple[StreamSpan, ...]
    replication_factor: int
    """As it was asked for: clients are told what they want to hear, the object store replicates."""
    configs: Mapping[str, str]
    settings: TopicSettings
    state: TopicState = TopicState.LIVE
    growing: StreamSpan | None = None
    version: int = 0
    """The version of the key that says so; 0 when it was not written."""

    @property
    def partition_count(self) -> int:
        """How many partitions can be seen."""
        return self.spans[-1].partitions_end

    @property
    def at_rest(self) -> bool:
        """Whether nothing that was decided is left to carry out."""
        return self.state is TopicState.LIVE and self.growing is None

    def stream(self, partition: int) -> StreamId | None:
        """The stream of a partition, or None when there is no such partition."""
        if not 0 <= partition < self.partition_count:
            return None
        spans = self.spans
        place = bisect_right(spans, partition, key=_first_partition) - 1 if len(spans) > 1 else 0
        span = spans[place]
        return StreamId(span.first_stream + partition - span.first_partition)

    def streams(self) -> list[int]:
        """The streams of all partitions, by partition."""
        return [stream for span in self.spans for stream in span.streams()]

    def grown(self) -> "Topic":
        """The topic with what was growing in it."""
        if self.growing is None:
            return self
        return replace(self, spans=joined(self.spans, self.growing), growing=None)


def _first_partition(span: StreamSpan) -> int:
    return span.first_partition


def joined(spans: tuple[StreamSpan, ...], added: StreamSpan) -> tuple[StreamSpan, ...]:
    """The spans with one more at the end; two that follow each other become one."""
    if not spans:
        return (added,)
    last = spans[-1]
    assert added.first_partition == last.partitions_end, (last, added)
    if added.first_stream == last.first_stream + last.count:
        return (*spans[:-1], replace(last, count=last.count + added.count))
    return (*spans, added)


class _Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON of a topic's key."""

    format: int
    name: str
    id: str
    state: TopicState
    spans: list[tuple[int, int, int]]
    replication_factor: int
    configs: dict[str, str]
    change: str
    """A token of the change that wrote this, by which its writer knows it again."""
    growing: tuple[int, int, int] | None = None


class _Format(msgspec.Struct):
    format: int


def encode(topic: Topic, *, change: bytes) -> bytes:
    """The value of the topic's key; raises `TooLarge` when no key could hold it."""
    value = msgspec.json.encode(
        _Key(
            format=KEY_FORMAT,
            name=topic.name,
            id=topic.id.hex(),
            state=topic.state,
            spans=[span.numbers() for span in topic.spans],
            replication_factor=topic.replication_factor,
            configs=dict(topic.configs),
            change=change.hex(),
            growing=None if topic.growing is None else topic.growing.numbers(),
        )
    )
    if len(value) > VALUE_BYTES_MAX:
        raise TooLarge(
            f"Topic '{topic.name}' needs a key of {len(value)} bytes, and a key has at most"
            f" {VALUE_BYTES_MAX}: its configs are too long, or it has grown too often"
        )
    return value


def decode(value: bytes, *, version: int, defaults: Mapping[str, str] = NONE_SET) -> Topic:
    """The topic of a key's value; raises `Corrupt` when it is not one we can read."""
    try:
        written = msgspec.json.decode(value, type=_Format).format
        if written > KEY_FORMAT:
            raise Corrupt(f"a topic key has format {written}, this version knows {KEY_FORMAT}")
        key = msgspec.json.decode(value, type=_Key)
        return Topic(
            name=key.name,
            id=_topic_id(key.id),
            spans=_spans(key.spans),
            replication_factor=key.replication_factor,
            configs=key.configs,
            settings=in_effect(key.configs, defaults),
            state=key.state,
            growing=None if key.growing is None else _span(key.growing),
            version=version,
        )
    except (msgspec.MsgspecError, ValueError, InvalidConfig) as reason:
        raise Corrupt(f"a topic key cannot be read: {reason}") from reason


def new_topic_id(entropy: Entropy) -> TopicId:
    """A random UUID (version 4) that no client takes for one of the reserved ids."""
    token = bytearray(entropy.token(16))
    token[6] = (token[6] & 0x0F) | 0x40
    token[8] = (token[8] & 0x3F) | 0x80
    return TopicId(bytes(token))


def _topic_id(text: str) -> TopicId:
    found = bytes.fromhex(text)
    if len(found) != 16:
        raise ValueError(f"a topic id has 16 bytes, not {len(found)}")
    return TopicId(found)


def _span(numbers: tuple[int, int, int]) -> StreamSpan:
    first_partition, first_stream, count = numbers
    if first_partition < 0 or first_stream <= 0 or count <= 0:
        raise ValueError(f"{numbers} is no span")
    return StreamSpan(first_partition, first_stream, count)


def _spans(written: list[tuple[int, int, int]]) -> tuple[StreamSpan, ...]:
    spans = tuple(_span(numbers) for numbers in written)
    expected = 0
    for span in spans:
        if span.first_partition != expected:
            raise ValueError(f"partition {expected} is missing")
        expected = span.partitions_end
    if not spans:
        raise ValueError("a topic without partitions")
    return spans
