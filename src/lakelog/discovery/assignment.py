"""Members as the assignor sees them, who owns what, and what may be given now. Pure.

Rules:
- A partition belongs to the claimant of the highest generation; if two claim it from the same
  generation one of them is wrong and it belongs to neither.
- Cooperative (KIP-429): a partition that another member still claims, by right or not, is given to
  nobody else. Its claimant is told that it is awaited, lets go of it and joins again; then it has
  no owner and is given. So no partition has two owners, and what does not move never stops.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakelog.discovery.node import TopicPartition
from lakelog.wire.codec import ConsumerTopicPartitions

Assignment = dict[str, tuple[TopicPartition, ...]]
"""What each member is given, by member id: by topic, then partition."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of the group with what counts for the assignment."""

    member_id: str
    node_id: str = ""
    cores: int = 1
    rpc_address: str = ""
    raft_address: str = ""
    topics: tuple[str, ...] | None = None
    """What it reads; None means every topic."""
    failure_domain: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    """What it claims to hold."""
    generation: int = -1
    """The generation in which it got what it claims."""
    is_draining: bool = False
    """It is given something only if no other member can take it."""


def settled_claims(
    claims: Sequence[tuple[int, Collection[TopicPartition]]],
) -> list[Collection[TopicPartition]]:
    """What each claimant owns, of what it claims with a generation; in the claimants' order."""
    everything = [owned for _, owned in claims]
    if len(set().union(*everything)) == sum(map(len, everything)):
        return everything  # nothing is claimed twice: the way it is but for a fault
    best: dict[TopicPartition, tuple[int, int]] = {}
    disputed: dict[TopicPartition, int] = {}
    for place, (generation, owned) in enumerate(claims):
        for partition in set(owned):
            rival = best.get(partition)
            if rival is None or generation > rival[0]:
                best[partition] = (generation, place)
            elif generation == rival[0]:
                disputed[partition] = generation
    found: list[list[TopicPartition]] = [[] for _ in claims]
    for partition, (generation, place) in best.items():
        if disputed.get(partition) != generation:
            found[place].append(partition)
    return list(found)


def cooperative_step(
    members: Sequence[GroupMember], target: Assignment
) -> tuple[Assignment, frozenset[str]]:
    """What of `target` can be given now, and the members that others wait for to let go."""
    claimants: dict[TopicPartition, list[str]] = {}
    for member in members:
        for partition in member.owned:
            claimants.setdefault(partition, []).append(member.member_id)
    given: Assignment = {}
    awaited: set[str] = set()
    for member_id, partitions in target.items():
        now = []
        for partition in partitions:
            claiming = claimants.get(partition)
            if claiming is None or member_id in claiming:
                now.append(partition)
            else:
                awaited.update(claiming)
        given[member_id] = tuple(now)
    return given, frozenset(awaited)


def moved_partitions(
    before: Mapping[str, Iterable[TopicPartition]], after: Assignment
) -> tuple[TopicPartition, ...]:
    """What a member that is still there had and another has now."""
    return tuple(
        sorted(
            partition
            for member_id, partitions in before.items()
            if member_id in after
            for partition in set(partitions) - set(after[member_id])
        )
    )


def by_topic(partitions: Iterable[TopicPartition]) -> tuple[ConsumerTopicPartitions, ...]:
    """The partitions as the consumer protocol has them: sorted, so that the bytes are stable."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(set(partitions)):
        grouped.setdefault(topic, []).append(partition)
    return tuple(
        ConsumerTopicPartitions(topic=topic, partitions=tuple(numbers))
        for topic, numbers in grouped.items()
    )


def from_topics(topics: Iterable[ConsumerTopicPartitions]) -> tuple[TopicPartition, ...]:
    """The partitions of the consumer protocol, sorted and each once."""
    return tuple(sorted({(entry.topic, number) for entry in topics for number in entry.partitions}))
