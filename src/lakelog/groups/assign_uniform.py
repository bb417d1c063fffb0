"""The `uniform` assignor: balanced first, then sticky. Pure.

When all readers read the same topics, their numbers of partitions differ by one at most, and no
assignment with that balance moves fewer partitions. Otherwise `groups.assign_mixed` decides.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain

from lakelog.groups.assign_mixed import assign_mixed
from lakelog.groups.assign_values import Assignment, Subscriber, in_order, known_topics
from lakelog.model.ids import TopicId


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
