"""Largest remainder: how many of some equal things each of several weights gets. Pure.

Everyone gets its exact share rounded down; what is left goes, one each, to the largest remainders.
Ties go to who holds one more already (nothing moves), then to the greater weight, then to the
failure domain with the least so far, then to who comes first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Weighted:
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


def apportion(count: int, among: Weighted, holding: Sequence[int]) -> list[int]:
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
