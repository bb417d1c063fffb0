"""Claims, the cooperative step, and the bytes of partitions."""

from hypothesis import given
from hypothesis import strategies as st

from lakelog.discovery.assignor import (
    GroupMember,
    by_topic,
    cooperative_step,
    from_topics,
    moved_partitions,
    settled_claims,
)

A0, A1, A2 = ("a", 0), ("a", 1), ("a", 2)


def test_a_partition_belongs_to_the_claim_of_the_highest_generation() -> None:
    assert settled_claims([(5, (A0, A1)), (7, (A0,)), (6, (A0,))]) == [[A1], [A0], []]


def test_a_partition_claimed_twice_in_one_generation_belongs_to_nobody() -> None:
    assert settled_claims([(5, (A0, A1)), (5, (A0,)), (4, (A0,))]) == [[A1], [], []]


def test_an_older_dispute_does_not_touch_a_newer_claim() -> None:
    assert settled_claims([(4, (A0,)), (4, (A0,)), (5, (A0,))]) == [[], [], [A0]]


def test_a_member_that_claims_something_twice_still_owns_it() -> None:
    assert settled_claims([(4, (A0, A0))]) == [[A0]]


def test_what_another_member_claims_is_given_only_after_it_was_let_go() -> None:
    old = GroupMember("old", owned=(A0, A1), generation=3)
    new = GroupMember("new")
    target = {"old": (A0,), "new": (A1, A2)}
    assert cooperative_step([old, new], target) == (
        {"old": (A0,), "new": (A2,)},
        frozenset({"old"}),
    )
    let_go = GroupMember("old", owned=(A0,), generation=4)
    assert cooperative_step([let_go, new], target) == (target, frozenset())


def test_a_stale_claim_takes_nothing_from_the_owner_and_blocks_everyone_else() -> None:
    stale = GroupMember("stale", owned=(A0, A1), generation=1)
    owner = GroupMember("owner", owned=(A0,), generation=3)
    target = {"stale": (), "owner": (A0, A1)}
    given_now, awaited = cooperative_step([stale, owner], target)
    assert given_now == {"stale": (), "owner": (A0,)}
    assert awaited == {"stale"}


def test_moved_is_what_a_member_that_stayed_no_longer_has() -> None:
    before = {"x": (A0, A1), "gone": (A2,)}
    assert moved_partitions(before, {"x": (A0,), "y": (A1, A2)}) == (A1,)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5))))
def test_partitions_are_sorted_by_topic_and_read_as_written(found: list[tuple[str, int]]) -> None:
    topics = by_topic(found)
    assert from_topics(topics) == tuple(sorted(set(found)))
    assert [entry.topic for entry in topics] == sorted({topic for topic, _ in found})
    assert by_topic(reversed(found)) == topics
