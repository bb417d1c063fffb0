"""The assignor `laminar-range`: partitions in proportion to cores, moved as little as can be. Pure.

Rules of the target:
- Every partition goes to exactly one of the members that read its topic; a topic that nobody reads
  goes to nobody.
- How many each gets is largest remainder by cores (`lakelog.discovery.apportionment`).
- A member keeps what it has up to that number, the lowest partitions first. The rest is dealt in
  ascending ranges in the order of node ids, so a first assignment is one range a member and topic.
- The result depends on what the members are, not on the order in which they or the topics come.

Rules of who owns what, and what may be given now:
- A partition belongs to the claimant of the highest generation; if two claim it from the same
  generation one of them is wrong and it belongs to neither.
- Cooperative (KIP-429): a partition that another member still claims, by right or not, is given to
  nobody else. Its claimant is told that it is awaited, lets go of it and joins again; then it has
  no owner and is given. So no partition has two owners, and what does not move never stops.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from lakelog.discovery.apportionment import WeightedMembers, quotas
from lakelog.discovery.config import ASSIGNOR_NAME
from lakelog.discovery.node import TopicPartition, node_order
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


class LaminarPartitionAssignor:
    """WeightedMembers, sticky, deterministic assignment; the group's leader runs it."""

    name: ClassVar[str] = ASSIGNOR_NAME

    @staticmethod
    def assign(
        members: Iterable[GroupMember],
        topic_partitions: Mapping[str, Sequence[int]],
        owned: Mapping[str, Iterable[TopicPartition]] | None = None,
    ) -> Assignment:
        """Give every partition to a member, by member id.

        `owned` is what members hold now; without it, what they claim themselves counts.
        """
        ordered = sorted(members, key=lambda member: (node_order(member.node_id), member.member_id))
        if owned is None:
            claims = settled_claims([(each.generation, each.owned) for each in ordered])
        else:
            claims = settled_claims([(0, tuple(owned.get(each.member_id, ()))) for each in ordered])
        numbers = {topic: _numbers(topic_partitions[topic]) for topic in sorted(topic_partitions)}
        holders = _holders(claims, numbers)
        given: list[list[TopicPartition]] = [[] for _ in ordered]
        circles = _alike(ordered, numbers)
        for readers, topics in circles.items():
            if readers:
                shared = [(topic, numbers[topic]) for topic in topics]
                _share(ordered, readers, shared, holders, given)
        if len(circles) > 1:
            for partitions in given:
                partitions.sort()
        return {
            member.member_id: tuple(partitions)
            for member, partitions in zip(ordered, given, strict=True)
        }


def _numbers(partitions: Sequence[int]) -> Sequence[int]:
    """The partitions ascending and each once."""
    is_plain = isinstance(partitions, range) and partitions.step == 1
    return partitions if is_plain else sorted(set(partitions))


def _holders(
    claims: Sequence[Iterable[TopicPartition]], numbers: Mapping[str, Sequence[int]]
) -> dict[str, dict[int, list[int]]]:
    """What each member, by its place, holds of each topic: only what exists, ascending."""
    existing: dict[str, Container[int]] = {
        topic: found if isinstance(found, range) else frozenset(found)
        for topic, found in numbers.items()
    }
    holders: dict[str, dict[int, list[int]]] = {topic: {} for topic in numbers}
    for place, owned in enumerate(claims):
        for topic, partition in owned:
            if topic in existing and partition in existing[topic]:
                holders[topic].setdefault(place, []).append(partition)
    for topic_holders in holders.values():
        for kept in topic_holders.values():
            kept.sort()
    return holders


def _alike(
    members: Sequence[GroupMember], numbers: Mapping[str, Sequence[int]]
) -> dict[tuple[int, ...], list[str]]:
    """The topics by who reads them: places of members to topics in order."""
    circles: dict[frozenset[str] | None, list[int]] = {}
    for place, member in enumerate(members):
        wanted = None if member.topics is None else frozenset(member.topics)
        circles.setdefault(wanted, []).append(place)
    readers: dict[tuple[int, ...], tuple[int, ...]] = {}
    found: dict[tuple[int, ...], list[str]] = {}
    sets = list(circles.items())
    for topic in numbers:
        which = tuple(
            number for number, (wanted, _) in enumerate(sets) if wanted is None or topic in wanted
        )
        if which not in readers:
            readers[which] = tuple(sorted(place for each in which for place in sets[each][1]))
        found.setdefault(readers[which], []).append(topic)
    return found


def _share(
    members: Sequence[GroupMember],
    readers: tuple[int, ...],
    topics: Sequence[tuple[str, Sequence[int]]],
    holders: Mapping[str, Mapping[int, Sequence[int]]],
    given: Sequence[list[TopicPartition]],
) -> None:
    """Share topics that the same members read; `given` grows."""
    weighted = _weighted([members[place] for place in readers])
    position = {place: index for index, place in enumerate(readers)}
    held: list[dict[int, Sequence[int]]] = [
        {position[place]: kept for place, kept in holders[topic].items() if place in position}
        for topic, _ in topics
    ]
    amounts = quotas(
        [len(numbers) for _, numbers in topics],
        weighted,
        [{index: len(kept) for index, kept in each.items()} for each in held],
    )
    for (topic, numbers), quota, kept in zip(topics, amounts, held, strict=True):
        for index, partitions in _dealt(numbers, quota, kept):
            given[readers[index]].extend([(topic, partition) for partition in partitions])


def _weighted(members: Sequence[GroupMember]) -> WeightedMembers:
    """The weights: cores, and none for who is draining unless all are."""
    cores = [max(1, member.cores) for member in members]
    if not all(member.is_draining for member in members):
        cores = [
            0 if member.is_draining else weight
            for member, weight in zip(members, cores, strict=True)
        ]
    domains = [member.failure_domain for member in members]
    return WeightedMembers(weights=cores, domains=domains, total=sum(cores))


def _dealt(
    numbers: Sequence[int], quota: Mapping[int, int], held: Mapping[int, Sequence[int]]
) -> Iterator[tuple[int, Sequence[int]]]:
    """Which partitions each member gets: what it has up to its quota, then ranges of the rest."""
    if not held:
        start = 0
        for index, amount in quota.items():
            yield index, numbers[start : start + amount]
            start += amount
        return
    keeps = {index: kept[: quota.get(index, 0)] for index, kept in held.items()}
    taken = set(chain.from_iterable(keeps.values()))
    rest = [partition for partition in numbers if partition not in taken]
    start = 0
    for index, amount in quota.items():
        kept = keeps.get(index, ())
        missing = amount - len(kept)
        if missing:
            yield index, sorted([*kept, *rest[start : start + missing]])
            start += missing
        else:
            yield index, kept
    assert start == len(rest), (start, len(rest))
