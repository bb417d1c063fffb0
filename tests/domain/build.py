"""Short ways to say records and events in tests."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lakelog.domain.commit_event import Commit
from lakelog.domain.envelope import DomainRecord, Stamp, encode_record
from lakelog.domain.events import Create, Event, Genesis, Hello, Trim
from lakelog.domain.machine import apply
from lakelog.domain.state import Applied, Committed, DomainState
from lakelog.model.ids import TopicId, WalId

TOPIC = TopicId(bytes(range(16)))


@dataclass(frozen=True, slots=True)
class B:
    """One batch of a Commit."""

    stream: int
    count: int = 1
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    length: int = 100
    timestamp_ms: int = 1_000


def idempotent(
    stream: int, sequence: int, *, count: int = 1, producer: int = 7, epoch: int = 0
) -> B:
    return B(stream, count, producer, epoch, sequence)


def wal_id(time_ms: int, number: int = 0) -> WalId:
    return WalId(time_ms.to_bytes(6, "big") + number.to_bytes(10, "big"))


def commit_of(
    batches: Sequence[B], *, time_ms: int = 1_000, number: int = 0, zone: str = ""
) -> Commit:
    """A Commit of these batches, sorted by stream (in their order within one), back to back."""
    ordered = sorted(batches, key=lambda batch: batch.stream)
    lengths = np.array([batch.length for batch in ordered], dtype=np.uint32)
    starts = (np.cumsum(lengths) - lengths + 49).astype(np.uint32)
    return Commit(
        wal_id(time_ms, number),
        zone,
        int(starts[-1]) + int(lengths[-1]) + 17,
        np.array([batch.stream for batch in ordered], dtype=np.int64),
        starts,
        lengths,
        np.array([batch.count for batch in ordered], dtype=np.uint32),
        np.array([batch.timestamp_ms for batch in ordered], dtype=np.int64),
        np.array([batch.producer for batch in ordered], dtype=np.int64),
        np.array([batch.epoch for batch in ordered], dtype=np.int16),
        np.array([batch.sequence for batch in ordered], dtype=np.int32),
    )


def create_of(*streams: int, topic: TopicId = TOPIC, first_partition: int = 0) -> Create:
    return Create(topic, first_partition, np.array(streams, dtype=np.int64))


def trim_of(offsets: dict[int, int]) -> Trim:
    return Trim(
        np.array(list(offsets), dtype=np.int64), np.array(list(offsets.values()), dtype=np.int64)
    )


class Domain:
    """A state and one well-behaved writer: each `add` is the next record."""

    def __init__(self, *streams: int) -> None:
        self.state = DomainState()
        self.number = 0
        self.add(Genesis("cluster", 0, 1), Hello(1))
        if streams:
            self.add(create_of(*streams))

    def add(self, *events: Event, writer: str = "a", incarnation: int = 1) -> Applied:
        self.number += 1
        record = DomainRecord(writer, Stamp(incarnation, self.number), 1, events)
        return apply(self.state, encode_record(record))

    def commit(self, *batches: B, time_ms: int = 1_000) -> list[tuple[int, int, int]]:
        """(verdict, offset, timestamp) of each batch, in the order of streams."""
        event = commit_of(batches, time_ms=time_ms, number=self.number)
        (outcome,) = self.add(event).outcomes
        return outcome_rows(outcome)


def outcome_rows(outcome: object) -> list[tuple[int, int, int]]:
    assert isinstance(outcome, Committed), outcome
    return list(
        zip(
            outcome.verdicts.tolist(),
            outcome.offsets.tolist(),
            outcome.timestamps.tolist(),
            strict=True,
        )
    )
