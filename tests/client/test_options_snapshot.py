"""Positions as values: kept as JSON, refused when they make no sense, joined from ranges."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.client.options import PartitionSnapshot, Snapshot, resume_position
from lakelog.kafka_client.failures import BadConfig

TOPIC_ID = "0123456789abcdef" * 2


def one(**changes: object) -> PartitionSnapshot:
    fields: dict[str, object] = {
        "topic": "t",
        "partition": 0,
        "topic_id": TOPIC_ID,
        "start": 5,
        "end": 90,
        "next_offset": 10,
        "released": ((12, 20), (30, 31)),
    }
    return PartitionSnapshot(**{**fields, **changes})  # type: ignore[arg-type]  # by name


def test_a_snapshot_survives_json_text_bytes_and_dictionaries() -> None:
    snapshot = Snapshot(partitions=(one(), one(partition=1, released=())))
    text = snapshot.to_json()
    assert Snapshot.parse(text) == snapshot
    assert Snapshot.parse(text.encode()) == snapshot
    assert Snapshot.parse(snapshot.to_dict()) == snapshot
    assert Snapshot.parse(json.loads(json.dumps(snapshot.to_dict()))) == snapshot
    assert Snapshot.parse(snapshot) is snapshot


@pytest.mark.parametrize(
    "changes",
    [
        {"next_offset": -1},
        {"partition": -1},
        {"released": ((20, 12),)},
        {"released": ((10, 20),)},
        {"released": ((12, 20), (20, 30))},
        {"released": ((30, 31), (12, 20))},
        {"topic_id": "xyz"},
    ],
)
def test_a_position_that_nobody_can_be_at_is_refused(changes: dict[str, object]) -> None:
    text = Snapshot(partitions=(one(**changes),)).to_json()
    with pytest.raises(BadConfig, match=r"t \[-?\d\] makes no sense"):
        Snapshot.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"partitions": []}',
        '{"partitions": [{}]}',
        '{"version": 2, "partitions": []}',
        '{"partitions": 5}',
        "\u00e4",
    ],
)
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(BadConfig, match="snapshot"):
        Snapshot.parse(text)


def test_a_partition_that_is_named_twice_is_refused() -> None:
    with pytest.raises(BadConfig, match="twice"):
        Snapshot.parse(Snapshot(partitions=(one(), one())).to_json())


def test_ranges_that_touch_become_one_and_those_at_the_offset_move_it() -> None:
    assert resume_position(10, [(12, 20)], [(20, 25), (30, 40)]) == (10, ((12, 25), (30, 40)))
    assert resume_position(10, [(10, 12), (12, 14), (16, 18)]) == (14, ((16, 18),))
    assert resume_position(10, [(2, 5), (5, 9)]) == (10, ())


@given(st.integers(0, 30), st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8))))
def test_a_position_says_of_every_offset_whether_it_was_given_out(
    next_offset: int, sizes: list[tuple[int, int]]
) -> None:
    ranges = [(start, start + size) for start, size in sizes]
    found, released = resume_position(next_offset, ranges)
    given_out = set(range(next_offset)).union(*(range(*each) for each in ranges))
    told = set(range(found)).union(*(range(*each) for each in released))
    assert told == given_out
    Snapshot(partitions=(one(next_offset=found, released=released),)).check()
