"""Balanced and sticky shares for members who read different topics. Pure.

1. A member keeps what it has of the topics that it reads.
2. What nobody has goes to the reader with the least; topics with the most partitions per reader
   come first, because their readers have the least choice.
3. As long as a member has two more than another reader of a topic of which it has a partition, one
   moves. Partitions that nobody had move first; those of a present owner only if that is not
   enough. Each move makes the sum of the squares of the loads smaller: it ends.

Steps 2 and 3 reckon with numbers of partitions. Which ones they are is said at the end, so that a
member whose number of a topic did not fall keeps all that it had of it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final

from lakelog.groups.assign_values import Assignment, Subscriber, readers_by_topic
from lakelog.model.ids import TopicId

RATIO_BITS: Final = 64
"""Enough to tell two ratios of 31-bit numbers apart without fractions."""


class _Topic:
    """One topic while shares are reckoned; members are known by their place in the order."""

    __slots__ = ("count", "held", "kept", "numbers", "readers", "topic_id")

    def __init__(self, topic_id: TopicId, count: int, readers: list[int]) -> None:
        self.topic_id = topic_id
        self.count = count
        self.readers = readers
        self.held: dict[int, list[int]] = {reader: [] for reader in readers}
        """Partitions by reader: those it keeps, then those it was given."""
        self.kept: dict[int, int] = {}
        """How many of them it had before."""
        self.numbers: dict[int, int] = {}
        """How many each reader is to have."""


def assign_mixed(
    members: Sequence[Subscriber],
    wanted: Sequence[frozenset[TopicId]],
    counts: Mapping[TopicId, int],
) -> list[Assignment]:
    """The shares of members in their order, each of whom reads `wanted` of the same place."""
    topics = [
        _Topic(topic_id, counts[topic_id], readers)
        for topic_id, readers in readers_by_topic(wanted).items()
    ]
    topics.sort(key=_choice)
    loads = [0] * len(members)
    for topic in topics:
        _keep(topic, members, loads)
    for topic in topics:
        _place(topic, loads)
    nothing: dict[int, int] = {}
    _balance(topics, loads, [topic.kept for topic in topics])
    _balance(topics, loads, [nothing] * len(topics))
    return _shares(topics, len(members))


def _choice(topic: _Topic) -> tuple[int, int, TopicId]:
    """Kafka's order of topics: most partitions per reader, then fewest readers, then the id."""
    ratio = (topic.count << RATIO_BITS) // len(topic.readers)
    return -ratio, len(topic.readers), topic.topic_id


def _keep(topic: _Topic, members: Sequence[Subscriber], loads: list[int]) -> None:
    """Leave to readers what they have; of two who claim one partition the first has it."""
    claimed = bytearray(topic.count)
    for reader in topic.readers:
        held = topic.held[reader]
        for partition in sorted(members[reader].owned.get(topic.topic_id, ())):
            if 0 <= partition < topic.count and not claimed[partition]:
                claimed[partition] = 1
                held.append(partition)
        topic.kept[reader] = len(held)
        loads[reader] += len(held)


def _place(topic: _Topic, loads: list[int]) -> None:
    """Give what nobody has to the readers with the least, one at a time."""
    owned = {partition for reader in topic.readers for partition in topic.held[reader]}
    # Of two with the same load the one comes first that had less at the start, as in Kafka.
    ranked = sorted(topic.readers, key=lambda reader: (loads[reader], reader))
    heap = [(loads[reader], rank) for rank, reader in enumerate(ranked)]
    for partition in range(topic.count):
        if partition in owned:
            continue
        load, rank = heap[0]
        heapreplace(heap, (load + 1, rank))
        topic.held[ranked[rank]].append(partition)
        loads[ranked[rank]] += 1
    topic.numbers = {reader: len(topic.held[reader]) for reader in topic.readers}


def _balance(
    topics: Sequence[_Topic], loads: list[int], floors: Sequence[Mapping[int, int]]
) -> None:
    """Balance topics until none of them has a move left; nobody goes below its floor."""
    topics_of: list[list[int]] = [[] for _ in loads]
    for which, topic in enumerate(topics):
        for reader in topic.readers:
            topics_of[reader].append(which)
    # A topic is looked at again only when the load of one of its readers has changed.
    waiting = deque(range(len(topics)))
    is_waiting = [True] * len(topics)
    while waiting:
        which = waiting.popleft()
        for reader in _balance_topic(topics[which], loads, floors[which]):
            for other in topics_of[reader]:
                if not is_waiting[other] and other != which:
                    is_waiting[other] = True
                    waiting.append(other)
        is_waiting[which] = False


def _balance_topic(topic: _Topic, loads: list[int], floor: Mapping[int, int]) -> list[int]:
    """Move partitions of one topic from its most to its least loaded readers; who was touched.

    Within one topic a giver never becomes a taker nor the other way round: the greatest load only
    falls and the least only rises. So the entries of the heaps that go stale are never used.
    """
    numbers = topic.numbers
    enough = min([loads[reader] for reader in topic.readers]) + 2
    givers = [
        (-loads[reader], -reader)
        for reader in topic.readers
        if loads[reader] >= enough and numbers[reader] > floor.get(reader, 0)
    ]
    if not givers:
        return []
    takers = [(loads[reader], reader) for reader in topic.readers]
    heapify(givers)
    heapify(takers)
    touched = set()
    while givers and -givers[0][0] - takers[0][0] >= 2:
        giver, taker = -givers[0][1], takers[0][1]
        for reader, step in ((giver, -1), (taker, 1)):
            numbers[reader] += step
            loads[reader] += step
            touched.add(reader)
        heapreplace(takers, (loads[taker], taker))
        if numbers[giver] > floor.get(giver, 0):
            heapreplace(givers, (-loads[giver], -giver))
        else:
            heappop(givers)
    return sorted(touched)


def _shares(topics: Sequence[_Topic], members: int) -> list[Assignment]:
    """Say which partitions: all keep what they hold, up to their number; the rest is dealt out."""
    shares: list[Assignment] = [{} for _ in range(members)]
    for topic in sorted(topics, key=lambda topic: topic.topic_id):
        rest = []
        for reader in topic.readers:
            rest += topic.held[reader][topic.numbers[reader] :]
        rest.sort()
        for reader in topic.readers:
            share = topic.held[reader][: topic.numbers[reader]]
            while len(share) < topic.numbers[reader]:
                share.append(rest.pop())  # the highest first, as in Kafka
            if share:
                shares[reader][topic.topic_id] = tuple(sorted(share))
        assert not rest, rest
    return shares
