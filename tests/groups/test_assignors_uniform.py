"""The `uniform` assignor: balance first, then as little movement as balance allows."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.groups.assign_cases import (
    TOPICS,
    Case,
    cases,
    check_cover,
    load,
    member,
    readable,
    topic,
    with_shares,
)

from lakelog.groups.assignors import Assignment, Subscriber, assign_uniform


def kept(members: list[Subscriber], result: dict[str, Assignment]) -> int:
    return sum(
        len(set(places) & set(result[one.member_id].get(topic_id, ())))
        for one in members
        for topic_id, places in one.owned.items()
    )


def is_within(smaller: Assignment, larger: Assignment) -> bool:
    return all(set(places) <= set(larger.get(key, ())) for key, places in smaller.items())


@settings(deadline=None)
@given(cases(alike=True))
def test_members_who_read_the_same_differ_by_one_at_most(case: Case) -> None:
    loads = [load(share) for share in assign_uniform(*case).values()]
    assert max(loads) - min(loads) <= 1


@settings(deadline=None)
@given(cases())
def test_nobody_has_two_more_than_another_reader_of_a_topic_of_its_own(case: Case) -> None:
    members, _ = case
    result = assign_uniform(*case)
    for one in members:
        for other in members:
            if load(result[one.member_id]) - load(result[other.member_id]) >= 2:
                assert not set(result[one.member_id]) & set(other.topics)


@settings(deadline=None)
@given(cases(alike=True, hostile=False))
def test_no_balanced_assignment_of_the_same_topics_moves_less(case: Case) -> None:
    members, counts = case
    total = sum(counts.get(topic_id, 0) for topic_id in members[0].topics)
    quota, extra = divmod(total, len(members))
    sizes = [load(one.owned) for one in members]
    # Of members above the quota as many as there are extra partitions may keep one more.
    most = sum(min(size, quota) for size in sizes)
    most += min(extra, sum(size > quota for size in sizes))
    assert kept(members, assign_uniform(*case)) == most


@settings(deadline=None)
@given(cases(alike=True))
def test_a_member_that_leaves_moves_only_its_own_partitions(case: Case) -> None:
    members, counts = case
    before = assign_uniform(members, counts)
    staying = with_shares(members, before)[1:]
    after = assign_uniform(staying, counts)
    assert all(is_within(one.owned, after[one.member_id]) for one in staying)


@settings(deadline=None)
@given(cases(alike=True), st.text("az", min_size=1))
def test_a_member_that_joins_takes_and_nobody_else_does(case: Case, member_id: str) -> None:
    members, counts = case
    before = assign_uniform(members, counts)
    newcomer = Subscriber(member_id, None, None, members[0].topics, {})
    after = assign_uniform([newcomer, *with_shares(members, before)], counts)
    assert all(is_within(after[key], before[key]) for key in before)
    assert load(after[member_id]) == min(map(load, after.values()))


@settings(deadline=None)
@given(cases(hostile=False))
def test_who_has_no_fewer_of_a_topic_keeps_all_it_had_of_it(case: Case) -> None:
    members, _ = case
    result = assign_uniform(*case)
    for one in members:
        for topic_id, places in one.owned.items():
            now = result[one.member_id].get(topic_id, ())
            assert len(now) < len(places) or set(places) <= set(now)


def test_partitions_without_an_owner_move_before_those_with_one() -> None:
    # The place of partition 1 is first "a", which then also gets the other topic. It goes on to
    # "c", although "b" has as many as "a".
    members = [
        member("a", [1, 2]),
        member("b", [1, 2], {1: [0, 2]}),
        member("c", [1]),
    ]
    result = assign_uniform(members, {topic(1): 3, topic(2): 1})
    assert readable(result) == {"a": {2: [0]}, "b": {1: [0, 2]}, "c": {1: [1]}}


def test_of_two_who_claim_a_partition_the_first_keeps_it() -> None:
    members = [member("b", [1], {1: [0, 1]}), member("a", [1], {1: [1, 1, 7, -1]})]
    result = assign_uniform(members, {topic(1): 2})
    assert readable(result) == {"a": {1: [1]}, "b": {1: [0]}}


def test_a_member_without_topics_does_not_count() -> None:
    members = [member("a", []), member("b", [1]), member("c", [1])]
    result = assign_uniform(members, {topic(1): 4})
    assert readable(result) == {"a": {}, "b": {1: [0, 1]}, "c": {1: [2, 3]}}


def test_new_partitions_move_nothing_else() -> None:
    members = [member("a", [1]), member("b", [1]), member("c", [1])]
    before = assign_uniform(members, {topic(1): 5})
    after = assign_uniform(with_shares(members, before), {topic(1): 9})
    assert all(is_within(before[key], after[key]) for key in before)
    assert [load(share) for share in after.values()] == [3, 3, 3]


def test_a_thousand_members_of_ten_thousand_partitions_rebalance_by_ten() -> None:
    counts = {topic(number): 1_000 for number in range(10)}
    members = [member(f"m{index:04}", range(10)) for index in range(1_000)]
    before = assign_uniform(members, counts)
    assert {load(share) for share in before.values()} == {10}
    staying = with_shares(members, before)[1:]
    after = assign_uniform(staying, counts)
    assert sum(map(load, after.values())) == 10_000
    assert kept(staying, after) == 9_990


def test_a_chain_of_readers_comes_to_rest() -> None:
    # Member n reads topics n-1 and n, and the lower one of two readers has it all: what the last
    # member lacks comes down the chain, a partition a step.
    members = [
        member(
            f"m{index:03}",
            [number for number in (index - 1, index) if 0 <= number < 199],
            {index: range(100)} if index < 199 else {},
        )
        for index in range(200)
    ]
    counts = {topic(number): 100 for number in range(199)}
    result = assign_uniform(members, counts)
    check_cover((members, counts), result)
    loads = [load(result[f"m{index:03}"]) for index in range(200)]
    assert all(high - low <= 1 for low, high in zip(loads[1:], loads, strict=False))
    assert loads[199] > 0


def test_two_groups_of_topics_are_balanced_each_for_itself() -> None:
    left, right = TOPICS[0], TOPICS[1]
    members = [member(f"l{index}", [1]) for index in range(3)]
    members += [member(f"r{index}", [2]) for index in range(2)]
    result = assign_uniform(members, {left: 7, right: 9})
    assert sorted(load(result[f"l{index}"]) for index in range(3)) == [2, 2, 3]
    assert sorted(load(result[f"r{index}"]) for index in range(2)) == [4, 5]
