"""Quotas over several topics: sums and shares both keep to their roundings."""

from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from lakelog.discovery.seats import quotas
from lakelog.discovery.weights import Weighted, apportion


def among(weights: list[int], domains: list[str | None] | None = None) -> Weighted:
    return Weighted(weights, domains or [None] * len(weights), sum(weights))


def sums(found: list[dict[int, int]], size: int) -> list[int]:
    return [sum(quota.get(index, 0) for quota in found) for index in range(size)]


def test_topics_of_one_partition_are_shared_and_not_all_given_to_the_first() -> None:
    found = quotas([1] * 9, among([1, 1, 1]), [{}] * 9)
    assert sums(found, 3) == [3, 3, 3]
    assert all(sum(quota.values()) == 1 for quota in found)


def test_one_topic_is_plain_largest_remainder() -> None:
    assert quotas([10], among([1, 1, 1]), [{}]) == [{0: 4, 1: 3, 2: 3}]


def test_a_member_that_holds_a_seat_keeps_it() -> None:
    held = [{0: 1}, {2: 1}, {1: 1}]
    assert quotas([1, 1, 1], among([1, 1, 1]), held) == [{0: 1}, {2: 1}, {1: 1}]


def test_the_seats_of_a_topic_are_spread_over_failure_domains() -> None:
    zones: list[str | None] = [*"aaaabbbb"]
    for quota in quotas([2] * 12, among([1] * 8, zones), [{}] * 12):
        assert sorted(zones[index] or "" for index in quota) == ["a", "b"]


def test_a_lost_seat_goes_to_the_domain_that_has_the_least_of_the_topic() -> None:
    zones: list[str | None] = ["a", "a", "a", "b", "b", "b"]
    # Both topics had a member in each zone; the one in zone b is gone.
    found = quotas([2, 2], among([1] * 6, zones), [{0: 1}, {1: 1}])
    for topic, quota in enumerate(found):
        assert quota[topic] == 1
        assert Counter(zones[index] for index in quota) == {"a": 1, "b": 1}


cases = st.tuples(
    st.lists(st.integers(0, 12), min_size=1, max_size=8),
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
)


@given(cases)
def test_sums_are_largest_remainder_and_every_topic_is_given_out(
    case: tuple[list[int], list[int]],
) -> None:
    counts, weights = case
    found = quotas(counts, among(weights), [{}] * len(counts))
    assert [sum(quota.values()) for quota in found] == counts
    assert sums(found, len(weights)) == apportion(sum(counts), among(weights), [0] * len(weights))
    assert all(list(quota) == sorted(quota) and all(quota.values()) for quota in found)


@given(cases, st.data())
def test_of_each_topic_a_member_gets_its_share_rounded_with_one_more_at_most(
    case: tuple[list[int], list[int]], data: st.DataObject
) -> None:
    counts, weights = case
    places = st.integers(0, len(weights) - 1)
    held = [dict(Counter(data.draw(st.lists(places, max_size=count)))) for count in counts]
    found = quotas(counts, among(weights), held)
    for count, quota in zip(counts, found, strict=True):
        for index, weight in enumerate(weights):
            share = Fraction(count * weight, sum(weights))
            assert int(share) <= quota.get(index, 0) < share + 2


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.integers(1, 6))
def test_with_equal_weights_every_share_is_rounded_exactly(counts: list[int], size: int) -> None:
    for quota, count in zip(
        quotas(counts, among([1] * size), [{}] * len(counts)), counts, strict=True
    ):
        found = [quota.get(index, 0) for index in range(size)]
        assert max(found) - min(found) <= 1
        assert sum(found) == count
