"""How many partitions of each topic a member gets, over topics that the same members read. Pure.

Rules of the largest remainder, how many of some equal things each of several weights gets:
- Everyone gets its exact share rounded down; what is left goes, one each, to the largest
  remainders.
- Ties go to who holds one more already (nothing moves), then to the greater weight, then to the
  failure domain with the least so far, then to who comes first.

Rules over several topics:
- A member's sum over the topics is its largest remainder of all their partitions; of each topic it
  gets its exact share rounded down or up. For one topic this is plain largest remainder; for many
  it keeps the first member from collecting the remainder of every topic.
- What is above the rounded-down share is a seat. Seats go to members who hold it already, then to
  those who lack the most of their sum, of these to the largest remainder in the topic, then to the
  failure domain that has the least of the topic.
- Rounding up cannot always satisfy every sum at once; then a seat is swapped, and if no swap helps,
  the sum is kept and a member has one more of that topic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import groupby


@dataclass(frozen=True, slots=True)
class WeightedMembers:
    """The members that share something, in their order; the lists run in parallel."""

    weights: Sequence[int]
    domains: Sequence[str | None]
    total: int
    """The sum of the weights: above 0."""

    def floors(self, count: int) -> list[int]:
        """The exact shares of `count` things, rounded down."""
        if count * max(self.weights) < self.total:
            return [0] * len(self.weights)
        return [count * weight // self.total for weight in self.weights]

    def remainders(self, count: int) -> list[int]:
        """What the exact shares of `count` things are above the whole, in parts of the total."""
        return [count * weight % self.total for weight in self.weights]


def apportion(count: int, among: WeightedMembers, holding: Sequence[int]) -> list[int]:
    """How many of `count` things each member gets, while it holds so many."""
    given = among.floors(count)
    left = count - sum(given)
    if left == 0:
        return given
    keys = [
        (-remainder, held <= floor, -weight)
        for remainder, held, floor, weight in zip(
            among.remainders(count), holding, given, among.weights, strict=True
        )
    ]
    ordered = sorted(range(len(keys)), key=keys.__getitem__)
    for _, group in groupby(ordered, key=keys.__getitem__):
        tied = list(group)
        chosen = tied if len(tied) <= left else _spread(tied, left, among.domains, given)
        for index in chosen:
            given[index] += 1
        left -= len(chosen)
        if left == 0:
            break
    assert left == 0, left
    return given


def spread_order(indexes: Sequence[int], domains: Sequence[str | None]) -> list[int]:
    """The members so that neighbours are in different failure domains as far as that goes."""
    return _spread(indexes, len(indexes), domains, [0] * len(domains))


def _spread(
    tied: Sequence[int], wanted: int, domains: Sequence[str | None], given: Sequence[int]
) -> list[int]:
    """So many of the members, each time one of the domain that has been given the least."""
    load: dict[str | None, int] = {}
    for index, count in enumerate(given):
        load[domains[index]] = load.get(domains[index], 0) + count
    keys = {}
    for index in tied:
        keys[index] = (load[domains[index]], index)
        load[domains[index]] += 1
    return sorted(tied, key=keys.__getitem__)[:wanted]


Held = Mapping[int, int]
"""How many partitions of one topic each member holds; who holds none may be left out."""

Quota = dict[int, int]
"""How many partitions of one topic each member gets, in the members' order; zeros left out."""

_Waiting = tuple[int, int, int]
"""A member that lacks something: the lack as a negative, its rank, its index."""

_Queues = dict[tuple[str | None, int], list[_Waiting]]
"""Those who lack something by failure domain and weight: in one queue remainders are equal."""


def quotas(counts: Sequence[int], among: WeightedMembers, held: Sequence[Held]) -> list[Quota]:
    """For each topic of that many partitions: how many each member gets."""
    holding = [0] * len(among.weights)
    for topic in held:
        for index, number in topic.items():
            holding[index] += number
    sums = apportion(sum(counts), among, holding)
    if len(counts) == 1:
        return [{index: amount for index, amount in enumerate(sums) if amount}]
    return _Seating(counts, among, sums).dealt(held)


class _Seating:
    """The seats of all topics while they are being dealt; used once."""

    def __init__(self, counts: Sequence[int], among: WeightedMembers, sums: Sequence[int]) -> None:
        self._counts = counts
        self._domains = among.domains
        self._weights = among.weights
        self._floors = {count: among.floors(count) for count in set(counts)}
        self._remainders = {count: among.remainders(count) for count in set(counts)}
        self._seated: list[set[int]] = [set() for _ in counts]
        whole = {count: sum(floors) for count, floors in self._floors.items()}
        self._free = [count - whole[count] for count in counts]
        self._lack = list(sums)
        for count in filter(whole.__getitem__, counts):
            for index, floor in enumerate(self._floors[count]):
                self._lack[index] -= floor
        order = spread_order(range(len(sums)), among.domains)
        self._rank = {index: rank for rank, index in enumerate(order)}
        self._extra: list[tuple[int, int]] = []

    def dealt(self, held: Sequence[Held]) -> list[Quota]:
        """Deal every seat and give the quotas."""
        for topic, holders in enumerate(held):
            if self._free[topic] and holders:
                self._keep(topic, holders)
        self._fill()
        for topic, free in enumerate(self._free):
            for _ in range(free):
                self._squeeze(topic)
        whole = {
            count: {index: floor for index, floor in enumerate(floors) if floor}
            for count, floors in self._floors.items()
        }
        found = [dict(whole[count]) for count in self._counts]
        for quota, seated in zip(found, self._seated, strict=True):
            for index in seated:
                quota[index] = quota.get(index, 0) + 1
        for topic, index in self._extra:
            found[topic][index] = found[topic].get(index, 0) + 1
        return [dict(sorted(quota.items())) for quota in found]

    def _can_sit(self, topic: int, index: int) -> bool:
        """A share that is whole already is not rounded up."""
        is_whole = self._remainders[self._counts[topic]][index] == 0
        return not is_whole and index not in self._seated[topic]

    def _seat(self, topic: int, index: int) -> None:
        self._seated[topic].add(index)
        self._lack[index] -= 1
        self._free[topic] -= 1

    def _keep(self, topic: int, holders: Held) -> None:
        """Seats of a topic for members that hold more than their rounded-down share."""
        floors = self._floors[self._counts[topic]]
        keeping = [
            index
            for index, number in holders.items()
            if number > floors[index] and self._lack[index] > 0 and self._can_sit(topic, index)
        ]
        if len(keeping) > self._free[topic]:
            remainders = self._remainders[self._counts[topic]]
            keeping.sort(
                key=lambda index: (-self._lack[index], -remainders[index], self._rank[index])
            )
        for index in keeping[: self._free[topic]]:
            self._seat(topic, index)

    def _fill(self) -> None:
        """Seats that nobody holds, for those who lack the most."""
        waiting: _Queues = {}
        for index, lack in enumerate(self._lack):
            if lack > 0:
                entry = (-lack, self._rank[index], index)
                kind = (self._domains[index], self._weights[index])
                waiting.setdefault(kind, []).append(entry)
        for queue in waiting.values():
            heapify(queue)
        for topic, free in enumerate(self._free):
            if free:
                self._fill_topic(topic, waiting)

    def _fill_topic(self, topic: int, waiting: _Queues) -> None:
        """One topic, seat by seat, each for the first of the best queue."""
        used = dict.fromkeys((domain for domain, _ in waiting), 0)
        for index in self._seated[topic]:
            used[self._domains[index]] = used.get(self._domains[index], 0) + 1
        remainders = self._remainders[self._counts[topic]]
        heads = [
            (queue[0][0], -remainders[queue[0][2]], used[kind[0]], queue[0][1], kind)
            for kind, queue in waiting.items()
            if queue
        ]
        heapify(heads)
        back: list[_Waiting] = []
        while heads and self._free[topic]:
            head = heappop(heads)
            kind, queue = head[4], waiting[head[4]]
            if head[2] == used[kind[0]]:
                back.append(self._offer(topic, heappop(queue), used))
            if queue:
                first = (queue[0][0], head[1], used[kind[0]], queue[0][1], kind)
                heappush(heads, first)  # also when its domain has got a seat in between
        for entry in back:
            if entry[0]:
                index = entry[2]
                heappush(waiting[self._domains[index], self._weights[index]], entry)

    def _offer(self, topic: int, waiting: _Waiting, used: dict[str | None, int]) -> _Waiting:
        """Give a member a seat if it can take one; what it lacks then."""
        lack, rank, index = waiting
        if not self._can_sit(topic, index):
            return waiting
        self._seat(topic, index)
        used[self._domains[index]] += 1
        return (lack + 1, rank, index)

    def _squeeze(self, topic: int) -> None:
        """Place a seat that nobody who lacks one can take: by a swap with another topic if any."""
        lacking = min(
            (index for index, lack in enumerate(self._lack) if lack > 0), key=self._rank.__getitem__
        )
        self._lack[lacking] -= 1
        self._free[topic] -= 1
        for other, seated in enumerate(self._seated):
            if other == topic or not self._can_sit(other, lacking):
                continue
            movable = [index for index in seated if self._can_sit(topic, index)]
            if movable:
                mover = min(movable, key=self._rank.__getitem__)
                seated.remove(mover)
                seated.add(lacking)
                self._seated[topic].add(mover)
                return
        self._extra.append((topic, lacking))
