"""Global partition ids: over full counts, in configuration order."""

from hypothesis import given
from hypothesis import strategies as st

from lakelog.discovery.partition_ids import PartitionCountChanged, PartitionIds


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
