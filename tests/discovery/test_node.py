"""Nodes: their ids, their order, and that equal nodes are equal."""

import pickle

import pytest

from lakelog.discovery.node import NodeId, NodeInfo, NodeMetadata, is_legal_node_id, node_order


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
