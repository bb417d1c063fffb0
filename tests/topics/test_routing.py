from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.model.ids import BrokerId, TopicId
from lakelog.topics.routing import (
    KEPT_PARTITIONS_MAX,
    SLOTS,
    BrokerNode,
    RoutingView,
    view,
    views,
    zone_of,
)
from lakelog.topics.settings import settings
from lakelog.topics.topic import StreamSpan, Topic

ids = st.sets(st.integers(0, 1000), min_size=1, max_size=6)


def node(number: int, rack: str | None = None) -> BrokerNode:
    return BrokerNode(BrokerId(number), "host", 9092, rack)


def topic(*spans: tuple[int, int, int]) -> Topic:
    return Topic(
        name="t",
        id=TopicId(bytes(16)),
        spans=tuple(StreamSpan(*span) for span in spans),
        replication_factor=1,
        configs={},
        settings=settings({}),
    )


def leaders(brokers: Iterable[int], *spans: tuple[int, int, int]) -> tuple[int, ...]:
    return view(node(number) for number in brokers).partition_leaders(topic(*spans))


@given(ids, st.integers(1, 1 << 62), st.integers(1, 40))
def test_all_brokers_agree_and_none_leads_two_partitions_more_than_another(
    brokers: set[int], first: int, count: int
) -> None:
    found = leaders(brokers, (0, first, count))
    assert leaders(sorted(brokers, reverse=True), (0, first, count)) == found
    shares = Counter(found)
    assert set(shares) <= brokers
    assert len(found) == count
    assert max(shares.values()) - min(shares[number] for number in brokers) <= 1


def test_three_partitions_on_three_brokers_are_one_each() -> None:
    ours = view(node(number) for number in (1, 2, 3))
    for first in range(1, 200):
        assert sorted(ours.partition_leaders(topic((0, first, 3)))) == [1, 2, 3]


def test_topics_of_one_partition_are_spread_by_hash() -> None:
    ours = view(node(number) for number in range(4))
    alone = [ours.partition_leaders(topic((0, stream, 1)))[0] for stream in range(1, SLOTS + 1)]
    shares = Counter(alone)
    assert all(200 <= shares[BrokerId(number)] <= 320 for number in range(4))


@pytest.mark.parametrize(
    ("brokers", "partitions", "moved_max"), [(3, 3, 0.5), (3, 1_000, 0.36), (10, 1_000, 0.15)]
)
def test_when_a_broker_goes_little_moves_but_what_it_led(
    brokers: int, partitions: int, moved_max: float
) -> None:
    all_of_them = view(node(number) for number in range(brokers))
    but_one = view(node(number) for number in range(brokers - 1))
    moved = total = 0
    for turn in range(max(3_000 // partitions, 1)):
        moving = topic((0, 1 + 7 * turn * partitions, partitions))
        before, after = map(RoutingView.partition_leaders, (all_of_them, but_one), (moving, moving))
        moved += sum(old != new for old, new in zip(before, after, strict=True))
        total += partitions
    assert 1 / brokers <= moved / total < moved_max  # what it led is a share of 1 / brokers


def test_a_topic_that_grew_is_spread_as_a_whole() -> None:
    found = leaders((1, 2, 3), (0, 5, 4), (4, 900, 2))
    assert Counter(found) == {1: 2, 2: 2, 3: 2}


def test_leaders_are_worked_out_once_and_forgotten_when_they_are_too_many() -> None:
    ours = view([node(1)])
    huge = topic((0, 1, KEPT_PARTITIONS_MAX // 2))
    found = ours.partition_leaders(huge)
    assert ours.partition_leaders(huge) is found
    ours.partition_leaders(topic((0, 7, KEPT_PARTITIONS_MAX // 2)))
    ours.partition_leaders(topic((0, 1, 1)))
    again = ours.partition_leaders(huge)
    assert again is not found
    assert again == found


def test_names_have_leaders_too() -> None:
    ours = view(node(number) for number in range(3))
    assert {ours.leader_of_key(f"group-{number}") for number in range(100)} == {0, 1, 2}


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
    assert set(found["b"].partition_leaders(topic((0, 1, 50)))) == {3}
    assert [n.id for n in found[None].nodes] == [1, 2, 3, 4]
