"""What an assignor is asked and what it answers. Pure values.

Order is what makes assignments repeatable: members are taken by instance id, then by member id;
topics by id; partitions ascending. No assignor may see the order in which it got its input.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lakelog.model.ids import TopicId

Assignment: TypeAlias = dict[TopicId, tuple[int, ...]]
"""Partitions by topic, ascending; a topic without partitions is absent."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it: what it reads, and what its present target is.

    The rack is carried and not used: Kafka's assignors of 4.x do not look at it either.
    """

    member_id: str
    instance_id: str | None
    rack: str | None
    topics: frozenset[TopicId] | tuple[TopicId, ...]
    owned: Assignment


Assignor: TypeAlias = Callable[[Sequence[Subscriber], Mapping[TopicId, int]], dict[str, Assignment]]
"""From members and numbers of partitions to each member's partitions; every member is named."""


def in_order(subscribers: Sequence[Subscriber]) -> list[Subscriber]:
    """Static members by instance id, then the others by member id, as Kafka's range assignor.

    A static member that comes back under another member id keeps its place.
    """
    ordered = sorted(
        subscribers,
        key=lambda member: (
            member.instance_id is None,
            member.instance_id or "",
            member.member_id,
        ),
    )
    assert len({member.member_id for member in ordered}) == len(ordered), "a member twice"
    return ordered


def known_topics(
    ordered: Sequence[Subscriber], counts: Mapping[TopicId, int]
) -> list[frozenset[TopicId]]:
    """Each member's topics without those that have no known partitions."""
    # Most groups have one subscription: it is looked through once.
    known: dict[frozenset[TopicId], frozenset[TopicId]] = {}
    result = []
    for member in ordered:
        topics = frozenset(member.topics)
        if topics not in known:
            known[topics] = frozenset(topic for topic in topics if counts.get(topic, 0) > 0)
        result.append(known[topics])
    return result


def readers_by_topic(wanted: Sequence[frozenset[TopicId]]) -> dict[TopicId, list[int]]:
    """The members of each topic by their place in the order; the topics by their ids."""
    readers: dict[TopicId, list[int]] = {}
    for index, topics in enumerate(wanted):
        for topic in topics:
            readers.setdefault(topic, []).append(index)
    return {topic: readers[topic] for topic in sorted(readers)}
