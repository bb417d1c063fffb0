"""Server-side assignors of the consumer protocol (KIP-848): `range` and `uniform`. Pure.

What an assignor is asked (`Subscriber`) and answers stands first, then each assignor, then their
table by name.

An assignor is a function of the members, of what they have, and of the numbers of partitions. It is
called once per group epoch, off the loop, and its answer is data in the log: two versions of
this code never have to agree. Each partition of a topic that anybody reads goes to exactly one of
its readers; topics whose number of partitions is not known are left out.

Order is what makes assignments repeatable: members are taken by instance id, then by member id;
topics by id; partitions ascending. No assignor may see the order in which it got its input.

`range`: each topic is cut into one range per reader, in the order of members. Topics with the same
readers and the same number of partitions are cut alike, so that partition n of all of them goes to
one member. The first members get the remainder. It looks at nobody's present partitions: what stays
is what the same order gives again, as in Kafka.

`uniform`: balanced first, then sticky. When all readers read the same topics, their numbers of
partitions differ by one at most, and no assignment with that balance moves fewer partitions.
Otherwise `assign_mixed` decides:

1. A member keeps what it has of the topics that it reads.
2. What nobody has goes to the reader with the least; topics with the most partitions per reader
   come first, because their readers have the least choice.
3. As long as a member has two more than another reader of a topic of which it has a partition, one
   moves. Partitions that nobody had move first; those of a present owner only if that is not
   enough. Each move makes the sum of the squares of the loads smaller: it ends.

Steps 2 and 3 reckon with numbers of partitions. Which ones they are is said at the end, so that a
member whose number of a topic did not fall keeps all that it had of it.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import accumulate, chain
from typing import Final, TypeAlias

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


def assign_range(
    subscribers: Sequence[Subscriber], counts: Mapping[TopicId, int]
) -> dict[str, Assignment]:
    """Contiguous ranges of each topic, by member id."""
    ordered = in_order(subscribers)
    shares: list[Assignment] = [{} for _ in ordered]
    for topic, readers in readers_by_topic(known_topics(ordered, counts)).items():
        quota, extra = divmod(counts[topic], len(readers))
        start = 0
        for rank, index in enumerate(readers):
            end = start + quota + (1 if rank < extra else 0)
            if start < end:
                shares[index][topic] = tuple(range(start, end))
            start = end
    return {member.member_id: share for member, share in zip(ordered, shares, strict=True)}


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
        _keep_mixed(topic, members, loads)
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


def _keep_mixed(topic: _Topic, members: Sequence[Subscriber], loads: list[int]) -> None:
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


def assign_uniform(
    subscribers: Sequence[Subscriber], counts: Mapping[TopicId, int]
) -> dict[str, Assignment]:
    """Balanced and sticky assignments, by member id."""
    ordered = in_order(subscribers)
    wanted = known_topics(ordered, counts)
    result: dict[str, Assignment] = {member.member_id: {} for member in ordered}
    readers = [member for member, topics in zip(ordered, wanted, strict=True) if topics]
    subscriptions = [topics for topics in wanted if topics]
    if not readers:
        return result
    if all(topics == subscriptions[0] for topics in subscriptions):
        shares = _assign_alike(readers, sorted(subscriptions[0]), counts)
    else:
        shares = assign_mixed(readers, subscriptions, counts)
    result.update(zip((member.member_id for member in readers), shares, strict=True))
    return result


def _assign_alike(
    readers: Sequence[Subscriber], topics: Sequence[TopicId], counts: Mapping[TopicId, int]
) -> list[Assignment]:
    """Shares of members who all read `topics`; partitions are numbered through all of them."""
    starts = [0, *accumulate(counts[topic] for topic in topics)]
    is_free = bytearray(b"\1") * starts[-1]
    spans = {topic: range(starts[i], starts[i + 1]) for i, topic in enumerate(topics)}
    held = [_keep(reader.owned, spans, is_free) for reader in readers]
    targets = _targets([len(share) for share in held], starts[-1])
    # First what nobody has, then what members must give: Kafka's order, too.
    unowned = (number for number, free in enumerate(is_free) if free)
    given = chain.from_iterable(share[target:] for share, target in zip(held, targets, strict=True))
    rest = [*unowned, *given]
    shares, taken = [], 0
    for share, target in zip(held, targets, strict=True):
        missing = max(0, target - len(share))
        numbers = sorted(share[:target] + rest[taken : taken + missing])
        taken += missing
        shares.append(_by_topic(numbers, topics, starts))
    assert taken == len(rest), (taken, len(rest))
    return shares


def _keep(owned: Assignment, spans: Mapping[TopicId, range], is_free: bytearray) -> list[int]:
    """What a member has of these topics and no member before it has claimed, ascending."""
    kept = []
    for topic in sorted(owned):
        span = spans.get(topic, range(0))
        for partition in sorted(owned[topic]):
            if 0 <= partition < len(span) and is_free[span[partition]]:
                is_free[span[partition]] = 0
                kept.append(span[partition])
    return kept


def _targets(sizes: Sequence[int], total: int) -> list[int]:
    """How many partitions each member gets, so that the fewest are taken from a member.

    One above the quota is for members that have it already; what is left of it is for the last
    members in the order, as in Kafka.
    """
    quota, extra = divmod(total, len(sizes))
    above = [index for index, size in enumerate(sizes) if size > quota][:extra]
    favoured = set(above)
    for index in reversed(range(len(sizes))):
        if len(favoured) == extra:
            break
        favoured.add(index)
    return [quota + (1 if index in favoured else 0) for index in range(len(sizes))]


def _by_topic(
    numbers: Sequence[int], topics: Sequence[TopicId], starts: Sequence[int]
) -> Assignment:
    """Ascending numbers of partitions, told by topic again."""
    share: Assignment = {}
    place = 0
    while place < len(numbers):
        which = bisect_right(starts, numbers[place]) - 1
        end = bisect_left(numbers, starts[which + 1], lo=place)
        share[topics[which]] = tuple(number - starts[which] for number in numbers[place:end])
        place = end
    return share


__all__ = ["ASSIGNORS", "DEFAULT_ASSIGNOR", "Assignment", "Assignor", "Subscriber"]

DEFAULT_ASSIGNOR: Final = "uniform"
"""What a group gets whose members ask for no assignor."""

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors that a member may ask for by name; another name is refused."""
