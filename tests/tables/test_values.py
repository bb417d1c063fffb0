"""Offsets and snapshots as values."""

import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.catalog.snapshot_page import SnapshotFact
from lakelog.model.failures import Corrupt
from lakelog.tables.values import (
    Offsets,
    is_within,
    milliseconds,
    newest,
    offsets_of,
    snapshot_of,
)

PARTITIONS = st.integers(0, 3)
VECTORS = st.dictionaries(PARTITIONS, st.integers(0, 6))


def test_offsets_are_a_mapping_and_spark_s_json() -> None:
    found = offsets_of("t", {1: 7}, partition_count=3)
    assert found == {0: -2, 1: 7, 2: -2}
    assert list(found) == [0, 1, 2]
    assert len(found) == 3
    assert found[1] == 7
    assert found.as_spark() == '{"t":{"0":-2,"1":7,"2":-2}}'
    copied = found.as_mapping()
    copied[1] = 8
    assert found == pickle.loads(pickle.dumps(found)) == Offsets("t", {0: -2, 1: 7, 2: -2})


def test_offsets_of_partitions_that_the_topic_does_not_have_any_more_stay() -> None:
    assert offsets_of("t", {5: 1}, partition_count=1) == {0: -2, 5: 1}


@given(VECTORS, VECTORS)
def test_a_snapshot_is_within_offsets_if_each_of_its_rows_is(
    vector: dict[int, int], offsets: dict[int, int]
) -> None:
    rows = {(partition, offset) for partition, end in vector.items() for offset in range(end)}
    before = {(partition, offset) for partition, end in offsets.items() for offset in range(end)}
    assert is_within(vector, offsets) == (rows <= before)


@given(VECTORS, PARTITIONS)
def test_an_end_holds_all_and_a_beginning_nothing(vector: dict[int, int], partition: int) -> None:
    ends = dict.fromkeys(range(4), -1)
    assert is_within(vector, ends)
    assert is_within(vector, {**ends, partition: -2}) == (not vector.get(partition))


@given(VECTORS, st.lists(st.tuples(PARTITIONS, st.integers(1, 3)), max_size=12), VECTORS)
def test_of_vectors_that_grow_the_newest_within_is_the_largest_within(
    vector: dict[int, int], steps: list[tuple[int, int]], offsets: dict[int, int]
) -> None:
    facts = [SnapshotFact(0, 0, 0, "append", dict(vector))]
    for number, (partition, more) in enumerate(steps, 1):
        vector = {**vector, partition: vector.get(partition, 0) + more}
        facts.append(SnapshotFact(number, number, number, "append", dict(vector)))
    within = [one for one in facts if is_within(one.vector, offsets)]
    best = newest(within)
    assert (best is None) == (not within)
    if best is not None:
        assert all(is_within(one.vector, best.vector) for one in within)
        assert not any(is_within(one.vector, offsets) for one in facts[best.sequence_number + 1 :])


def test_a_fact_becomes_a_snapshot_with_its_time() -> None:
    fact = SnapshotFact(9, 1, 1_700_000_000_123, "replace", {0: 4})
    found = snapshot_of(fact, "t", partition_count=1, is_live=True)
    assert found.time == datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
    assert (found.id, found.operation, found.is_live) == (9, "replace", True)
    assert found.offsets == {0: 4}
    assert milliseconds(found.time) == fact.timestamp_ms


@pytest.mark.parametrize("time_ms", [1 << 62, -(1 << 62), 10**15])
def test_a_time_that_is_none_is_corrupt(time_ms: int) -> None:
    with pytest.raises(Corrupt, match="impossible time"):
        snapshot_of(SnapshotFact(1, 1, time_ms, "", {}), "t", partition_count=1, is_live=False)


def test_a_time_needs_its_zone() -> None:
    with pytest.raises(ValueError, match="time zone"):
        milliseconds(datetime(2024, 1, 1))  # noqa: DTZ001 - what is tested
