"""Largest remainder with its ties."""

from fractions import Fraction
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from lakelog.discovery.weights import Weighted, apportion, spread_order


def among(weights: list[int], domains: list[str | None] | None = None) -> Weighted:
    return Weighted(weights, domains or [None] * len(weights), sum(weights))


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
