"""Nodes, their ids and order, and the global numbers of partitions."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.discovery.node import (
    NodeId,
    NodeInfo,
    NodeMetadata,
    PartitionCountChanged,
    PartitionIds,
    is_legal_node_id,
    node_order,
)


def test_numbers_are_ordered_by_value_and_come_before_texts() -> None:
    ids = ["node-2", "10", "9", "node-10", "", "²", "9" * 21]
    assert sorted(ids, key=node_order) == ["9", "10", "", "9" * 21, "node-10", "node-2", "²"]


@pytest.mark.parametrize(
    ("node_id", "legal"),
    [
        ("a", True),
        ("a.b_c-9", True),
        ("x" * 249, True),
        ("x" * 250, False),
        ("", False),
        (".", False),
        ("..", False),
        ("ä", False),
        ("a\n", False),
    ],
)
def test_legal_ids_are_those_of_kafka(node_id: str, legal: bool) -> None:
    assert is_legal_node_id(node_id) is legal


def test_metadata_are_equal_whatever_order_their_tags_came_in() -> None:
    one = NodeMetadata(tags={"a": "1", "b": "2"}, owned_partitions=(1, 2))
    other = NodeMetadata(tags={"b": "2", "a": "1"}, owned_partitions=(1, 2))
    assert one == other
    assert hash(one) == hash(other)
    assert list(other.tags) == ["a", "b"]


def test_metadata_do_not_change_with_the_mapping_they_were_made_from() -> None:
    tags = {"a": "1"}
    metadata = NodeMetadata(tags=tags)
    tags["a"] = "2"
    assert metadata.tags == {"a": "1"}


def test_a_node_survives_the_way_to_another_process() -> None:
    node = NodeInfo(node_id=NodeId("a"), metadata=NodeMetadata(tags={"a": "1"}))
    assert pickle.loads(pickle.dumps(node)) == node


def test_kafka_to_laminar_partition_single_topic() -> None:
    ids = PartitionIds.of(("orders",), {"orders": 4})
    assert [ids.id_of("orders", partition) for partition in range(4)] == [0, 1, 2, 3]


def test_kafka_to_laminar_partition_multi_topic() -> None:
    ids = PartitionIds.of(("b", "a"), {"a": 2, "b": 3})
    assert ids.starts() == {"b": 0, "a": 3}
    assert ids.id_of("b", 2) == 2
    assert ids.id_of("a", 0) == 3
    assert ids.total == 5


def test_ids_do_not_depend_on_what_a_node_was_assigned() -> None:
    ids = PartitionIds.of(("a", "b"), {"a": 8, "b": 8})
    assert ids.ids_of([("b", 0), ("a", 7)]) == (7, 8)
    assert ids.ids_of([("b", 0)]) == (8,)


def test_what_does_not_exist_has_no_id() -> None:
    ids = PartitionIds.of(("a", "gone"), {"a": 2})
    assert ids.id_of("a", 2) is None
    assert ids.id_of("a", -1) is None
    assert ids.id_of("gone", 0) is None
    assert ids.id_of("other", 0) is None
    assert ids.ids_of([("a", 1), ("a", 2), ("other", 0), ("a", -1)]) == (1,)
    assert ids.partition_of(2) is None
    assert ids.partition_of(-1) is None


@given(st.lists(st.integers(0, 9), max_size=6))
def test_every_id_is_one_partition_and_every_partition_one_id(counts: list[int]) -> None:
    topics = [f"t{number}" for number in range(len(counts))]
    ids = PartitionIds.of(topics, dict(zip(topics, counts, strict=True)))
    pairs = [(t, p) for t, count in zip(topics, counts, strict=True) for p in range(count)]
    assert [ids.id_of(*pair) for pair in pairs] == list(range(ids.total))
    assert [ids.partition_of(number) for number in range(ids.total)] == pairs
    assert ids.ids_of(reversed(pairs)) == tuple(range(ids.total))


def test_a_changed_count_is_told_with_both_numbers() -> None:
    before = PartitionIds.of(("a", "b"), {"a": 2, "b": 3})
    after = PartitionIds.of(("a", "b"), {"a": 2, "b": 5})
    assert after.changes_since(before) == (PartitionCountChanged("b", before=3, after=5),)
    assert before.changes_since(before) == ()
    assert before.changes_since(PartitionIds()) == ()
