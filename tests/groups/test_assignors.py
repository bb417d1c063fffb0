"""What holds for every assignor: cover, repeatability, and Kafka's results."""

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.groups.assign_cases import (
    Case,
    cases,
    check_cover,
    member,
    readable,
    topic,
    with_shares,
)

from lakelog.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Subscriber

NAMES = sorted(ASSIGNORS)

Shares = dict[str, dict[int, list[int]]]

# Recorded from the assignors of Kafka 4.3.1. Its order of members is that of a hash table, which
# for ids of one letter is the alphabet.
KAFKA: list[tuple[str, dict[int, int], list[Subscriber], Shares]] = [
    (
        "uniform",
        {1: 4},
        [member("a", [1]), member("b", [1]), member("c", [1])],
        {"a": {1: [0]}, "b": {1: [1]}, "c": {1: [2, 3]}},
    ),
    (
        "uniform",
        {1: 3, 2: 2},
        [member("a", [1, 2]), member("b", [1, 2])],
        {"a": {1: [0, 1]}, "b": {1: [2], 2: [0, 1]}},
    ),
    (
        "uniform",
        {1: 1},
        [member("a", [1]), member("b", [1]), member("c", [1])],
        {"a": {}, "b": {}, "c": {1: [0]}},
    ),
    (
        "uniform",
        {1: 5},
        [member("a", [1], {1: [0, 1, 2]}), member("b", [1], {1: [3, 4]}), member("c", [1])],
        {"a": {1: [0, 1]}, "b": {1: [3, 4]}, "c": {1: [2]}},
    ),
    (
        "uniform",
        {1: 5},
        [member("a", [1], {1: [0, 1]}), member("c", [1], {1: [4]})],
        {"a": {1: [0, 1]}, "c": {1: [2, 3, 4]}},
    ),
    (
        "uniform",
        {1: 7, 2: 3},
        [
            member("a", [1, 2], {1: range(7)}),
            member("b", [1, 2], {2: [0, 1, 2]}),
            member("c", [1, 2]),
        ],
        {"a": {1: [0, 1, 2, 3]}, "b": {2: [0, 1, 2]}, "c": {1: [4, 5, 6]}},
    ),
    (
        "uniform",
        {2: 6},
        [member("a", [2], {1: [0, 1, 2], 2: [0]}), member("b", [2], {1: [3], 2: [1, 2]})],
        {"a": {2: [0, 3, 4]}, "b": {2: [1, 2, 5]}},
    ),
    (
        "uniform",
        {1: 6, 2: 3},
        [member("a", [1]), member("b", [1, 2])],
        {"a": {1: [0, 1, 2, 3, 5]}, "b": {1: [4], 2: [0, 1, 2]}},
    ),
    (
        "uniform",
        {1: 4, 2: 4, 3: 2},
        [member("a", [1]), member("b", [1, 2]), member("c", [2, 3])],
        {"a": {1: [0, 2, 3]}, "b": {1: [1], 2: [0, 2]}, "c": {2: [1, 3], 3: [0, 1]}},
    ),
    (
        "uniform",
        {1: 6, 2: 3},
        [member("a", [1], {1: [0, 1]}), member("b", [1, 2], {1: [2, 3, 4, 5], 2: [0, 1, 2]})],
        {"a": {1: [0, 1, 4, 5]}, "b": {1: [2, 3], 2: [0, 1, 2]}},
    ),
    (
        "uniform",
        {1: 3, 2: 3},
        [member("a", [1], {1: [0, 1, 2]}), member("b", [2], {2: [0, 1, 2]}), member("c", [1, 2])],
        {"a": {1: [0, 1]}, "b": {2: [0, 1]}, "c": {1: [2], 2: [2]}},
    ),
    (
        "uniform",
        {1: 6, 2: 3},
        [member("a", [1, 2]), member("b", [1])],
        {"a": {1: [4], 2: [0, 1, 2]}, "b": {1: [0, 1, 2, 3, 5]}},
    ),
    (
        "uniform",
        {1: 2, 2: 5},
        [member("a", [1, 2]), member("b", [1]), member("c", [2])],
        {"a": {2: [0, 2, 4]}, "b": {1: [0, 1]}, "c": {2: [1, 3]}},
    ),
    (
        "uniform",
        {1: 6, 2: 1},
        [member("a", [1], {1: range(6)}), member("b", [1]), member("c", [1, 2])],
        {"a": {1: [0, 1, 2]}, "b": {1: [4, 5]}, "c": {1: [3], 2: [0]}},
    ),
    (
        "range",
        {1: 3, 2: 3},
        [member("a", [1, 2]), member("b", [1, 2])],
        {"a": {1: [0, 1], 2: [0, 1]}, "b": {1: [2], 2: [2]}},
    ),
    (
        "range",
        {1: 7, 2: 3, 3: 1},
        [member("a", [1, 2, 3]), member("b", [1, 2, 3]), member("c", [1, 2, 3])],
        {
            "a": {1: [0, 1, 2], 2: [0], 3: [0]},
            "b": {1: [3, 4], 2: [1]},
            "c": {1: [5, 6], 2: [2]},
        },
    ),
    (
        "range",
        {1: 6, 2: 3},
        [member("a", [1]), member("b", [1, 2]), member("c", [2])],
        {"a": {1: [0, 1, 2]}, "b": {1: [3, 4, 5], 2: [0, 1]}, "c": {2: [2]}},
    ),
    (
        "range",
        {1: 3},
        [member("a", [1], instance="z"), member("b", [1], instance="y"), member("c", [1])],
        {"a": {1: [1]}, "b": {1: [0]}, "c": {1: [2]}},
    ),
    (
        "range",
        {1: 3},
        [member("a", [1], {1: [0, 1, 2]}), member("b", [1], instance="y")],
        {"a": {1: [2]}, "b": {1: [0, 1]}},
    ),
]


@pytest.mark.parametrize(("name", "counts", "members", "expected"), KAFKA)
def test_an_assignment_is_the_one_that_kafka_makes(
    name: str, counts: dict[int, int], members: list[Subscriber], expected: Shares
) -> None:
    known = {topic(number): count for number, count in counts.items()}
    assert readable(ASSIGNORS[name](members, known)) == expected


def test_the_assignors_are_those_of_kafka() -> None:
    assert NAMES == ["range", "uniform"]
    assert DEFAULT_ASSIGNOR in ASSIGNORS


@pytest.mark.parametrize("name", NAMES)
def test_a_group_without_members_or_topics_gets_nothing(name: str) -> None:
    assign = ASSIGNORS[name]
    assert assign([], {topic(1): 3}) == {}
    assert assign([member("a", []), member("b", [1])], {topic(2): 3}) == {"a": {}, "b": {}}
    assert assign([member("a", [1])], {topic(1): 0}) == {"a": {}}


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(case=cases())
def test_each_partition_of_a_topic_goes_to_one_of_its_readers(name: str, case: Case) -> None:
    check_cover(case, ASSIGNORS[name](*case))


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(case=cases(), data=st.data())
def test_the_order_of_the_input_is_not_seen(name: str, case: Case, data: st.DataObject) -> None:
    members, counts = case
    shuffled = [
        Subscriber(
            one.member_id,
            one.instance_id,
            one.rack,
            tuple(data.draw(st.permutations(sorted(one.topics)))),
            {key: one.owned[key] for key in data.draw(st.permutations(sorted(one.owned)))},
        )
        for one in data.draw(st.permutations(members))
    ]
    others = {key: counts[key] for key in data.draw(st.permutations(sorted(counts)))}
    first, second = ASSIGNORS[name](members, counts), ASSIGNORS[name](shuffled, others)
    assert list(first.items()) == list(second.items())


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(case=cases())
def test_nothing_changes_when_nothing_changed(name: str, case: Case) -> None:
    members, counts = case
    first = ASSIGNORS[name](members, counts)
    assert ASSIGNORS[name](with_shares(members, first), counts) == first


@pytest.mark.parametrize("name", NAMES)
def test_a_static_member_keeps_its_partitions_under_another_member_id(name: str) -> None:
    counts = {topic(1): 7, topic(2): 4}
    members = [member(str(9 - index), [1, 2], instance=f"i{index}") for index in range(4)]
    before = ASSIGNORS[name](members, counts)
    first, *others = with_shares(members, before)
    back = Subscriber("zzz", first.instance_id, None, first.topics, first.owned)
    after = ASSIGNORS[name]([back, *others], counts)
    assert after.pop("zzz") == before.pop(first.member_id)
    assert after == before


SCRIPT = """
from tests.groups.assign_cases import member, topic
from lakelog.groups.assignors import ASSIGNORS
counts = {topic(number): 3 + number % 5 for number in range(12)}
mixed = [
    member(f"m{index}", [n for n in range(12) if (n * 7 + index) % 3], {index: [0, 1, 2]})
    for index in range(9)
]
alike = [member(f"m{index}", range(12), {index: [0, 1, 2]}) for index in range(9)]
for name in sorted(ASSIGNORS):
    for group in (mixed, alike):
        print(list(ASSIGNORS[name](group, counts).items()))
"""


def test_the_hash_seed_of_the_process_is_not_seen() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    ]
    assert len(outputs[0].splitlines()) == 4
    assert outputs[0] == outputs[1] == outputs[2]
