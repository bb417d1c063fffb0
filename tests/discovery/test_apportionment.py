"""Largest remainder: of one topic, and of many that the same members read."""

from collections import Counter
from fractions import Fraction
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from lakelog.discovery.apportionment import WeightedMembers, apportion, quotas, spread_order


def among(weights: list[int], domains: list[str | None] | None = None) -> WeightedMembers:
    return WeightedMembers(weights, domains or [None] * len(weights), sum(weights))


def test_the_rest_goes_to_the_largest_remainders() -> None:
    # Exact shares 0.77, 2.31, 3.92: the rest of two goes to 0.92 and 0.77.
    assert apportion(7, among([10, 30, 51]), [0, 0, 0]) == [1, 2, 4]


def test_ties_go_to_more_cores_and_then_to_who_comes_first() -> None:
    # Exact shares 1.5, 0.5, 0.5, 1.5.
    assert apportion(4, among([3, 1, 1, 3]), [0] * 4) == [2, 0, 0, 2]
    assert apportion(10, among([1, 1, 1]), [0] * 3) == [4, 3, 3]


def test_ties_go_to_who_holds_one_more_already() -> None:
    assert apportion(10, among([1, 1, 1]), [3, 3, 4]) == [3, 3, 4]
    assert apportion(4, among([3, 1, 1, 3]), [1, 1, 1, 1]) == [1, 1, 1, 1]


def test_ties_are_spread_over_failure_domains() -> None:
    zones: list[str | None] = ["a", "a", "b", "b", "c", "c"]
    assert apportion(3, among([1] * 6, zones), [0] * 6) == [1, 0, 1, 0, 1, 0]
    assert apportion(4, among([1] * 6, zones), [0] * 6) == [1, 1, 1, 0, 1, 0]
    # One of five nodes is alone in its zone: the remainder goes where a zone holds the least.
    assert apportion(6, among([1] * 5, ["a", "a", "a", "a", "b"]), [0] * 5) == [1, 1, 1, 1, 2]


def test_no_weight_gets_nothing() -> None:
    assert apportion(7, among([0, 1, 0, 2]), [7, 0, 0, 0]) == [0, 2, 0, 5]


weights_lists = st.lists(st.integers(0, 9), min_size=1, max_size=7).filter(any)


@given(st.integers(0, 60), weights_lists, st.data())
def test_everyone_gets_its_share_rounded_down_or_up(
    count: int, weights: list[int], data: st.DataObject
) -> None:
    holding = data.draw(st.lists(st.integers(0, 60), min_size=len(weights), max_size=len(weights)))
    domains = data.draw(
        st.lists(st.sampled_from(["a", "b", None]), min_size=len(weights), max_size=len(weights))
    )
    given_out = apportion(count, among(weights, domains), holding)
    assert sum(given_out) == count
    exact = [Fraction(count * weight, sum(weights)) for weight in weights]
    assert all(abs(got - share) < 1 for got, share in zip(given_out, exact, strict=True))
    up = [share % 1 for got, share in zip(given_out, exact, strict=True) if got > share]
    down = [share % 1 for got, share in zip(given_out, exact, strict=True) if got < share]
    assert not up or not down or min(up) >= max(down)


@given(st.integers(0, 20), st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_no_other_largest_remainder_moves_less(
    count: int, weights: list[int], data: st.DataObject
) -> None:
    size = len(weights)
    holding = data.draw(st.lists(st.integers(0, 9), min_size=size, max_size=size))
    given_out = apportion(count, among(weights), holding)
    total = sum(weights)
    floors = [count * weight // total for weight in weights]
    remainders = [count * weight % total for weight in weights]
    seats = count - sum(floors)
    fair = sorted(remainders, reverse=True)[:seats]
    best = min(
        sum(
            max(0, held - floor - (index in chosen))
            for index, (held, floor) in enumerate(zip(holding, floors, strict=True))
        )
        for chosen in combinations(range(size), seats)
        if sorted((remainders[index] for index in chosen), reverse=True) == fair
    )
    assert sum(max(0, held - got) for held, got in zip(holding, given_out, strict=True)) == best


def test_neighbours_in_the_spread_order_are_in_different_domains() -> None:
    assert spread_order(range(6), ["a", "a", "a", "b", "b", "c"]) == [0, 3, 5, 1, 4, 2]
    assert spread_order(range(3), [None, None, None]) == [0, 1, 2]


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
