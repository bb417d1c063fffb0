"""Global partition ids: the partitions of all topics, numbered through. Pure.

Rules:
- A topic's first id is the sum of the *full* partition counts of the topics before it in the
  configuration, so every node with that configuration numbers alike, whatever it was assigned.
- The counts are those that the leader of a generation saw and wrote into the assignment.
- A changed count renumbers every later topic: it is told as a `PartitionCountChanged`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakelog.discovery.node import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionCountChanged:
    """A topic has another number of partitions than before; ids of later topics have moved."""

    topic: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class PartitionIds:
    """The numbering: topics in configuration order with their full counts."""

    counts: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, topics: Sequence[str], counts: Mapping[str, int]) -> "PartitionIds":
        """Number these topics; one without a count has no partitions yet."""
        return cls(tuple((topic, counts.get(topic, 0)) for topic in topics))

    @property
    def total(self) -> int:
        """How many ids there are: [0, total)."""
        return sum(count for _, count in self.counts)

    def starts(self) -> dict[str, int]:
        """Each topic's first id."""
        found, start = {}, 0
        for topic, count in self.counts:
            found[topic] = start
            start += count
        return found

    def id_of(self, topic: str, partition: int) -> int | None:
        """The global id of a partition, or None if there is no such partition."""
        count = dict(self.counts).get(topic, 0)
        return self.starts()[topic] + partition if 0 <= partition < count else None

    def ids_of(self, partitions: Iterable[TopicPartition]) -> tuple[int, ...]:
        """The global ids of those partitions that exist, ascending."""
        starts, counts = self.starts(), dict(self.counts)
        return tuple(
            sorted(
                starts[topic] + partition
                for topic, partition in partitions
                if 0 <= partition < counts.get(topic, 0)
            )
        )

    def partition_of(self, partition_id: int) -> TopicPartition | None:
        """The partition with that global id, or None if there is none."""
        rest = partition_id
        for topic, count in self.counts:
            if 0 <= rest < count:
                return (topic, rest)
            rest -= count
        return None

    def changes_since(self, before: "PartitionIds") -> tuple[PartitionCountChanged, ...]:
        """What differs from an earlier numbering of the same topics."""
        earlier = dict(before.counts)
        return tuple(
            PartitionCountChanged(topic=topic, before=earlier[topic], after=count)
            for topic, count in self.counts
            if earlier.get(topic, count) != count
        )
