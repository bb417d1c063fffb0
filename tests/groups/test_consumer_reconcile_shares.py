"""Partitions of members: what is held, what is within, how it is listed, and whose it is (P1)."""

import pytest
from tests.groups.consumer_build import CLICKS, ORDERS, stable

from lakelog.groups.consumer_reconcile import is_held, is_within, listed, reowned
from lakelog.groups.state import ConsumerMember, Shares

SHARES: Shares = {CLICKS: {1: 5, 0: 5}, ORDERS: {3: 2}}


def member_of(member_id: str, assigned: Shares, revoking: Shares | None = None) -> ConsumerMember:
    return ConsumerMember(
        *(member_id, None, None, "client", "/host", 1, 1, (), "", None, 1, 1),
        assigned=assigned,
        revoking=revoking or {},
    )


def test_silence_means_that_everything_is_held() -> None:
    assert is_held(SHARES, None)
    assert is_held({}, None)


def test_one_partition_that_is_named_is_held() -> None:
    assert is_held(SHARES, ((ORDERS, (0, 3)),))
    assert not is_held(SHARES, ((ORDERS, (0, 1, 2)), (bytes(16), (3,))))
    assert not is_held(SHARES, ())


def test_within_is_some_or_all_or_none_and_nothing_else() -> None:
    assert is_within((), SHARES)
    assert is_within(((CLICKS, (0,)), (ORDERS, (3,))), SHARES)
    assert not is_within(((CLICKS, (0, 2)),), SHARES)
    assert not is_within(((bytes(16), ()),), SHARES)
    assert not is_within(None, SHARES)


def test_a_list_is_ascending_however_the_partitions_came() -> None:
    assert listed(SHARES) == ((ORDERS, (3,)), (CLICKS, (0, 1)))
    assert listed({}) == ()


def test_owners_follow_a_member_that_comes_changes_its_id_and_goes() -> None:
    first = member_of("a", {ORDERS: {0: 1}}, {ORDERS: {1: 1}})
    came = reowned({}, before=None, after=first)
    assert came == {ORDERS: {0: "a", 1: "a"}}
    second = member_of("b", first.assigned)
    moved = reowned(came, before=first, after=second)
    assert moved == {ORDERS: {0: "b"}}
    assert reowned(moved, before=second, after=None) == {}
    assert came == {ORDERS: {0: "a", 1: "a"}}


def test_what_goes_from_assigned_to_revoking_keeps_its_owner() -> None:
    owners = {bytes(ORDERS): {0: "a"}}
    before = member_of("a", {ORDERS: {0: 1}})
    after = member_of("a", {}, {ORDERS: {0: 1}})
    assert reowned(owners, before=before, after=after) is owners


def test_owners_of_other_topics_are_not_copied() -> None:
    group = stable("a")
    owners = {**group.owners, CLICKS: {0: "b"}}
    after = reowned(owners, before=group.members["a"], after=member_of("a", {}))
    assert after == {CLICKS: {0: "b"}}
    assert after[CLICKS] is owners[CLICKS]


def test_p1_a_partition_is_never_given_to_a_second_owner() -> None:
    with pytest.raises(AssertionError):
        reowned({ORDERS: {0: "a"}}, before=None, after=member_of("b", {ORDERS: {0: 1}}))
