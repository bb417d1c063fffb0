from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.model.ids import BrokerId
from lakelog.topics.routing import SLOTS, Node, view, views, zone_of

ids = st.sets(st.integers(0, 1000), min_size=1, max_size=6)


def node(number: int, rack: str | None = None) -> Node:
    return Node(BrokerId(number), "host", 9092, rack)


@given(ids, st.integers(0, 1 << 62))
def test_a_leader_is_one_of_the_brokers_whatever_their_order(
    brokers: set[int], stream: int
) -> None:
    found = view(node(number) for number in brokers).leader(stream)
    assert found in brokers
    assert view(node(number) for number in sorted(brokers, reverse=True)).leader(stream) == found


@given(ids, st.integers(1001, 1010))
def test_a_broker_that_comes_takes_streams_and_moves_no_others(brokers: set[int], new: int) -> None:
    before = view(node(number) for number in brokers)
    after = view(node(number) for number in brokers | {new})
    for slot in range(SLOTS):
        assert after.leader(slot) in {before.leader(slot), new}


def test_streams_are_spread_over_the_brokers() -> None:
    leaders = view(node(number) for number in range(4))
    shares = Counter(leaders.leader(stream) for stream in range(SLOTS))
    assert all(200 <= shares[BrokerId(number)] <= 320 for number in range(4))


def test_names_have_leaders_too() -> None:
    leaders = view(node(number) for number in range(3))
    assert {leaders.leader_of_key(f"group-{number}") for number in range(100)} == {0, 1, 2}


@given(ids, st.text(max_size=5))
def test_a_name_belongs_first_to_its_leader_and_then_to_whoever_would_follow(
    brokers: set[int], name: str
) -> None:
    alive = set(brokers)
    for expected in view(node(number) for number in brokers).ranked(name):
        assert view(node(number) for number in alive).leader_of_key(name) == expected
        alive.remove(expected)
    assert not alive


@pytest.mark.parametrize(
    ("client_id", "zone"),
    [
        (None, None),
        ("", None),
        ("app", None),
        ("zone_id=a", "a"),
        ("app=x, zone_id = b ,y=z", "b"),
        ("zone_id=", None),
        ("not_zone_id=a", None),
    ],
)
def test_a_client_names_its_zone_in_its_id(client_id: str | None, zone: str | None) -> None:
    assert zone_of(client_id) == zone


def test_a_zone_sees_its_own_brokers_and_everybody_else_sees_all() -> None:
    nodes = [node(1, "a"), node(2, "a"), node(3, "b"), node(4)]
    found = views(nodes)
    assert set(found) == {None, "a", "b"}
    assert [n.id for n in found["a"].nodes] == [1, 2]
    assert {found["b"].leader(stream) for stream in range(50)} == {3}
    assert [n.id for n in found[None].nodes] == [1, 2, 3, 4]
