"""The `range` assignor: contiguous ranges, aligned across topics that are alike."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.groups.assign_cases import Case, cases, load, member, readable, topic

from lakelog.groups.assignors import assign_range


@settings(deadline=None)
@given(cases())
def test_a_member_has_one_range_of_a_topic_and_ranges_differ_by_one_at_most(case: Case) -> None:
    members, counts = case
    result = assign_range(*case)
    for topic_id, count in counts.items():
        readers = [one.member_id for one in members if topic_id in one.topics]
        shares = [result[reader].get(topic_id, ()) for reader in readers]
        for share in shares:
            assert list(share) == list(range(share[0], share[-1] + 1)) if share else True
        if readers:
            assert {len(share) for share in shares} <= {
                count // len(readers),
                -(-count // len(readers)),
            }


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(1, 6))
def test_topics_with_the_same_readers_and_sizes_are_cut_alike(count: int, number: int) -> None:
    members = [member(f"m{index}", [1, 2, 3]) for index in range(number)]
    counts = {topic(which): count for which in (1, 2, 3)}
    for share in assign_range(members, counts).values():
        assert len(set(share.values())) <= 1
        assert len(share) in (0, 3)


def test_the_first_members_get_the_remainder() -> None:
    members = [member(name, [1]) for name in ("c", "a", "b")]
    result = assign_range(members, {topic(1): 5})
    assert readable(result) == {"a": {1: [0, 1]}, "b": {1: [2, 3]}, "c": {1: [4]}}


def test_static_members_come_first_in_the_order_of_their_instances() -> None:
    members = [
        member("a", [1]),
        member("b", [1], instance="node-2"),
        member("z", [1], instance="node-1"),
    ]
    result = assign_range(members, {topic(1): 3})
    assert readable(result) == {"z": {1: [0]}, "b": {1: [1]}, "a": {1: [2]}}


def test_what_members_have_is_not_looked_at() -> None:
    members = [member("a", [1]), member("b", [1], {1: [0, 1]})]
    result = assign_range(members, {topic(1): 2})
    assert readable(result) == {"a": {1: [0]}, "b": {1: [1]}}


def test_more_members_than_partitions_leave_the_last_without() -> None:
    members = [member(f"m{index}", [1, 2]) for index in range(5)]
    result = assign_range(members, {topic(1): 2, topic(2): 3})
    assert [load(result[f"m{index}"]) for index in range(5)] == [2, 2, 1, 0, 0]
