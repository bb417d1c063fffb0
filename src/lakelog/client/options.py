"""What a consumer is told, checked, and what it tells of itself: options, snapshots, metrics. Pure.

Rules: a `SourceTopic` is checked when it is made. Times are milliseconds. Whatever looks like one,
a mapping or an object with `name`, `policy` and `time_ms`, is taken for one. `start_offset` decides
where one partition begins, once the ends of its log and what the group committed are known.

Rows leave in the order of their time, so what was given out of a partition is no plain range: all
below `next_offset`, and the ranges `released` above it. Reading on from `next_offset` and leaving
out those ranges is exactly the rest.
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from lakelog.kafka_client.admin import LogBounds, TopicPartition
from lakelog.kafka_client.failures import (
    BadConfig,
    OffsetGone,
)

BATCH_SIZE: Final = 10_000
HELD_BYTES_MAX: Final = 256 * 1024 * 1024
HELD_MESSAGES_MIN: Final = 500_000
HELD_MESSAGES_PER_PARTITION: Final = 8_000
"""The default bound of rows is never less than these: an order needs rows of every partition."""

OUT_OF_ORDER_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """The arguments of a ConsumerManager, all of them allowed ones."""

    cutoff_ms: int | None = None
    batch_size: int = BATCH_SIZE
    ordered: bool = True
    max_held_messages: int | None = None
    max_held_bytes: int = HELD_BYTES_MAX
    out_of_order_ms: int = OUT_OF_ORDER_MS
    max_idle_ms: int | None = None
    views: bool = False
    headers: bool = True

    def __post_init__(self) -> None:
        _check("cutoff_ms", self.cutoff_ms, least=0, may_be_none=True)
        _check("batch_size", self.batch_size, least=1)
        _check("max_held_messages", self.max_held_messages, least=1, may_be_none=True)
        _check("max_held_bytes", self.max_held_bytes, least=1)
        _check("out_of_order_ms", self.out_of_order_ms, least=0)
        _check("max_idle_ms", self.max_idle_ms, least=1, may_be_none=True)

    def rows_max(self, partitions: int) -> int:
        """How many rows of so many partitions may be held."""
        if self.max_held_messages is not None:
            return self.max_held_messages
        least = max(HELD_MESSAGES_MIN, HELD_MESSAGES_PER_PARTITION * partitions)
        return max(5 * self.batch_size, least)


def whole_number(name: str, value: object, *, least: int) -> int:
    """A value that is a whole number and not less than that; else BadConfig."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadConfig(name, f"{value!r} is no whole number")
    if value < least:
        raise BadConfig(name, f"{value} is less than {least}")
    return value


def _check(name: str, value: object, *, least: int, may_be_none: bool = False) -> None:
    if value is not None or not may_be_none:
        whole_number(name, value, least=least)


EARLIEST: Final = "earliest"
LATEST: Final = "latest"
COMMITTED: Final = "committed"
RELATIVE_TIME: Final = "relative_time"
ABSOLUTE_TIME: Final = "absolute_time"
POLICIES: Final = (EARLIEST, LATEST, COMMITTED, RELATIVE_TIME, ABSOLUTE_TIME)

_TIMED: Final = (RELATIVE_TIME, ABSOLUTE_TIME)
_FIELDS: Final = ("name", "policy", "time_ms")
_LEGAL_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic, and the policy that says where its partitions are read from."""

    name: str
    policy: str = LATEST
    time_ms: int | None = None

    def __post_init__(self) -> None:
        if not _is_name(self.name):
            raise BadConfig("name", f"{self.name!r} cannot be the name of a topic")
        if self.policy not in POLICIES:
            raise BadConfig("policy", f"{self.policy!r} is none of {', '.join(POLICIES)}")
        if self.policy not in _TIMED:
            if self.time_ms is not None:
                raise BadConfig("time_ms", f"policy {self.policy!r} takes no time")
        elif not isinstance(self.time_ms, int) or isinstance(self.time_ms, bool):
            raise BadConfig("time_ms", f"policy {self.policy!r} needs a number of milliseconds")
        elif self.time_ms < 0:
            raise BadConfig("time_ms", f"{self.time_ms} is less than 0")

    @classmethod
    def from_earliest(cls, name: str) -> "SourceTopic":
        """From the first record that the log still holds."""
        return cls(name, EARLIEST)

    @classmethod
    def from_latest(cls, name: str) -> "SourceTopic":
        """From the end: only what is written from now on."""
        return cls(name, LATEST)

    @classmethod
    def from_committed(cls, name: str) -> "SourceTopic":
        """From where `group.id` committed; without a commit as `auto.offset.reset` says."""
        return cls(name, COMMITTED)

    @classmethod
    def from_relative_time(cls, name: str, time_ms: int) -> "SourceTopic":
        """From the first record that is at most this many milliseconds old now."""
        return cls(name, RELATIVE_TIME, time_ms)

    @classmethod
    def from_absolute_time(cls, name: str, time_ms: int) -> "SourceTopic":
        """From the first record at or after this time, in milliseconds since the epoch."""
        return cls(name, ABSOLUTE_TIME, time_ms)

    def start_ms(self, now_ms: int) -> int | None:
        """The time to read from, if the policy is one of time."""
        if self.policy == ABSOLUTE_TIME:
            return self.time_ms
        if self.policy == RELATIVE_TIME:
            assert self.time_ms is not None, "checked when it was made"
            return max(0, now_ms - self.time_ms)
        return None


def parse_topics(topics: Iterable[object]) -> tuple[SourceTopic, ...]:
    """The topics that a user named, in the order of their names, each once."""
    if isinstance(topics, str | bytes | Mapping | SourceTopic):
        raise BadConfig("topics", "give a list, also for one topic")
    found = [_parse_topic(topic) for topic in topics]
    if not found:
        raise BadConfig("topics", "name at least one")
    names = [topic.name for topic in found]
    for name in names:
        if names.count(name) > 1:
            raise BadConfig("topics", f"duplicate topic: {name!r}")
    return tuple(sorted(found, key=lambda topic: topic.name))


def _is_name(given: object) -> bool:
    """Whether Kafka allows a topic of this name."""
    legal = isinstance(given, str) and _LEGAL_NAME.fullmatch(given) is not None
    return legal and given not in {".", ".."}


def _parse_topic(given: object) -> SourceTopic:
    """One topic, out of anything that has the fields of one."""
    if isinstance(given, SourceTopic):
        return given
    if isinstance(given, Mapping):
        unknown = [str(key) for key in given if key not in _FIELDS]
        if unknown or "name" not in given:
            raise BadConfig("topics", f"{given!r} is no topic: its keys are {', '.join(_FIELDS)}")
        return SourceTopic(given["name"], given.get("policy") or LATEST, given.get("time_ms"))
    if isinstance(given, str) or not hasattr(given, "name"):
        raise BadConfig("topics", f"{given!r} is no topic; say SourceTopic.from_earliest(...)")
    return SourceTopic(
        given.name, getattr(given, "policy", LATEST), getattr(given, "time_ms", None)
    )


@dataclass(frozen=True, slots=True)
class StartPlan:
    """Everything that decides where one partition is read from."""

    place: TopicPartition
    policy: str
    log: LogBounds
    found: int | None
    """What the group committed, or where the time is; None if there is neither."""
    reset: str


def start_offset(plan: StartPlan) -> int:
    """Where to begin; raises OffsetGone where a commit lies outside the log and nothing is said."""
    if plan.policy == EARLIEST:
        return plan.log.start
    if plan.policy == LATEST:
        return plan.log.end
    if plan.policy != COMMITTED:
        return plan.log.end if plan.found is None else min(plan.found, plan.log.end)
    if plan.found is None:
        return plan.log.end if plan.reset == LATEST else plan.log.start
    if plan.log.start <= plan.found <= plan.log.end:
        return plan.found
    if plan.reset in (EARLIEST, LATEST):
        return plan.log.start if plan.reset == EARLIEST else plan.log.end
    place = plan.place
    raise OffsetGone(place.topic, place.partition, plan.found, plan.log.start, plan.log.end)


def check_policies(topics: Iterable[SourceTopic], group_id: str) -> None:
    """A policy that needs a group needs its name."""
    for topic in topics:
        if topic.policy == COMMITTED and not group_id:
            raise BadConfig("group.id", f"is missing; topic {topic.name!r} is read as committed")


OffsetRange: TypeAlias = tuple[int, int]
"""Offsets [start, end)."""

VERSION: Final = 1
_TOPIC_ID: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSnapshot:
    """What was given out of one partition, and how far its history went."""

    topic: str
    partition: int
    topic_id: str
    """In hexadecimal digits: a topic made again under the same name has another one."""
    start: int
    end: int
    """Where reading began, and where the partition ended then: up to here it is history."""
    next_offset: int
    """Everything before it was given out."""
    released: tuple[OffsetRange, ...] = ()
    """What was given out above it, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The position of a consumer in all its partitions; as JSON it survives the process."""

    partitions: tuple[PartitionSnapshot, ...]
    version: int = VERSION

    def to_json(self) -> str:
        """One line of JSON."""
        return msgspec.json.encode(self).decode()

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists and numbers: what `json.dumps` takes."""
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return found

    @classmethod
    def parse(cls, given: "Snapshot | Mapping[str, object] | str | bytes") -> "Snapshot":
        """A snapshot out of any form that it was kept in; BadConfig if it is none."""
        if isinstance(given, Snapshot):
            return given
        try:
            if isinstance(given, Mapping):
                found = msgspec.convert(dict(given), cls)
            else:
                found = msgspec.json.decode(given, type=cls)
        except msgspec.MsgspecError as reason:
            raise BadConfig("snapshot", f"it cannot be read: {reason}") from None
        found.check()
        return found

    def check(self) -> None:
        """Refuse what no consumer can have been at."""
        if self.version != VERSION:
            raise BadConfig("snapshot", f"version {self.version} is not known here")
        if not self.partitions:
            raise BadConfig("snapshot", "it names no partition")
        seen = {(partition.topic, partition.partition) for partition in self.partitions}
        if len(seen) != len(self.partitions):
            raise BadConfig("snapshot", "it names a partition twice")
        for partition in self.partitions:
            if not _makes_sense(partition):
                raise BadConfig(
                    "snapshot", f"{partition.topic} [{partition.partition}] makes no sense"
                )


def _makes_sense(partition: PartitionSnapshot) -> bool:
    edges = [partition.next_offset, *itertools.chain.from_iterable(partition.released)]
    return (
        partition.partition >= 0
        and edges[0] >= 0
        and all(low < high for low, high in itertools.pairwise(edges))
        and _TOPIC_ID.fullmatch(partition.topic_id) is not None
    )


def resume_position(
    next_offset: int, *released: Iterable[OffsetRange]
) -> tuple[int, tuple[OffsetRange, ...]]:
    """The least offset that was not given out, and what was above it, in order and apart."""
    joined: list[OffsetRange] = []
    for start, end in sorted(itertools.chain.from_iterable(released)):
        if end <= next_offset:
            continue
        if start <= next_offset:
            next_offset = end
        elif joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return next_offset, tuple(joined)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Counters since the consumer was made; `held_*` and `paused_partitions` are as of now."""

    polls: int
    rows_received: int
    rows_released: int
    rows_held: int
    rows_late: int
    """Rows given out after a later one while priming: beyond `out_of_order_ms`, or squeezed."""
    bytes_received: int
    """Bytes of record batches as they came over the wire."""
    bytes_held: int
    fetches: int
    fetches_failed: int
    batches_refetched: int
    """Answers whose checksum was wrong at first."""
    squeezes: int
    """Releases that did not wait for late rows, because memory was over its bound."""
    partitions_paused: int
    partitions_resumed: int
    paused_partitions: int
    partitions_added: int
    topics_recreated: int
    offsets_reset: int
