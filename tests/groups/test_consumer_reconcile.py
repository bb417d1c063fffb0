"""Reconciliation of consumer groups, heartbeat by heartbeat (row 91), and how fast it is."""

import time

from tests.groups.consumer_build import (
    CLICKS,
    ORDERS,
    answered,
    beat_of,
    fed,
    join_of,
    pairs,
    shared,
    stable,
)

from lakelog.groups.consumer import state_name, step, target_event, timers
from lakelog.groups.events import TimerExpired
from lakelog.groups.state import ConsumerGroup, MemberState, Timer, TimerKind

ALL = ((ORDERS, (0, 1, 2, 3)),)
HALF = ((ORDERS, (0, 1)),)
REST = ((ORDERS, (2, 3)),)


def halved() -> ConsumerGroup:
    """One member has all partitions, another one came, and half of them shall be its own."""
    group = fed(stable("a"), join_of("b"))
    return fed(group, shared(3, {"a": {ORDERS: (0, 1)}, "b": {ORDERS: (2, 3)}}))


def test_row_91_revoke_first_and_keep_the_old_epoch() -> None:
    group, answer = answered(halved(), "a", 2)
    assert (answer.epoch, answer.assignment) == (2, HALF)
    member = group.members["a"]
    assert (member.state, pairs(member.revoking)) == (
        MemberState.UNREVOKED,
        {(ORDERS, 2), (ORDERS, 3)},
    )


def test_row_91_silence_about_owned_partitions_is_not_letting_go() -> None:
    group = fed(halved(), beat_of("a", 2))
    same, answer = answered(group, "a", 2)
    assert same is group
    assert (answer.epoch, answer.assignment) == (2, None)


def test_row_91_naming_one_of_them_is_not_letting_go() -> None:
    group = fed(halved(), beat_of("a", 2))
    same, _ = answered(group, "a", 2, owned=((ORDERS, (0, 3)),))
    assert same is group


def test_row_91_having_let_go_the_member_moves_to_the_target_epoch() -> None:
    group = fed(halved(), beat_of("a", 2))
    group, answer = answered(group, "a", 2, owned=HALF)
    assert (answer.epoch, answer.assignment) == (3, None)
    assert group.members["a"].state is MemberState.STABLE
    assert group.owners == {ORDERS: {0: "a", 1: "a"}}


def test_row_91_who_says_at_once_that_it_has_no_more_need_not_revoke() -> None:
    _, answer = answered(halved(), "a", 2, owned=HALF)
    assert (answer.epoch, answer.assignment) == (3, HALF)


def test_row_91_what_others_hold_follows_at_the_same_epoch() -> None:
    group, answer = answered(halved(), "b", 2)
    assert (answer.epoch, answer.assignment) == (3, None)
    assert group.members["b"].state is MemberState.UNRELEASED
    assert answered(group, "b", 3)[0] is group
    group = fed(group, beat_of("a", 2))
    assert answered(group, "b", 3)[0] is group, "being revoked is being held"
    group = fed(group, beat_of("a", 2, owned=HALF))
    group, answer = answered(group, "b", 3)
    assert (answer.epoch, answer.assignment) == (3, REST)
    assert state_name(group) == "Stable"


def test_row_91_free_partitions_come_before_those_that_are_held() -> None:
    group = fed(stable("a"), join_of("b", names=("clicks", "orders")))
    group = fed(group, shared(3, {"a": {ORDERS: (0,)}, "b": {ORDERS: (1, 2, 3), CLICKS: (0, 1)}}))
    group, answer = answered(group, "b", 2)
    assert (answer.epoch, answer.assignment) == (3, ((CLICKS, (0, 1)),))
    group = fed(group, beat_of("a", 2), beat_of("a", 2, owned=((ORDERS, (0,)),)))
    _, answer = answered(group, "b", 3, owned=((CLICKS, (0, 1)),))
    assert answer.assignment == ((ORDERS, (1, 2, 3)), (CLICKS, (0, 1)))


def test_a_newer_target_does_not_free_what_is_still_to_be_revoked() -> None:
    group = fed(halved(), beat_of("a", 2), join_of("c"))
    group = fed(group, shared(4, {"a": {ORDERS: (2, 3)}, "b": {ORDERS: (0,)}, "c": {ORDERS: (1,)}}))
    same, answer = answered(group, "a", 2)
    assert same is group
    group, answer = answered(group, "a", 2, owned=HALF)
    assert (answer.epoch, answer.assignment) == (2, ()), "now the others are to be revoked"
    group, answer = answered(group, "a", 2, owned=())
    assert (answer.epoch, answer.assignment) == (4, REST)


def test_what_was_to_be_revoked_is_given_back_once_it_was_let_go_of() -> None:
    group = fed(halved(), beat_of("a", 2), join_of("c"))
    group = fed(group, shared(4, {"a": {ORDERS: (0, 1, 2, 3)}}))
    group, answer = answered(group, "a", 2, owned=HALF)
    assert (answer.epoch, answer.assignment) == (4, ALL)
    assert group.members["a"].assigned == {ORDERS: {0: 2, 1: 2, 2: 4, 3: 4}}


def test_row_91_who_does_not_let_go_in_time_is_fenced() -> None:
    group = halved()
    assert timers(group) == ()
    group = fed(group, beat_of("a", 2))
    (timer,) = timers(group)
    assert timer == Timer(TimerKind.REVOKE, "a", timer.number, 60_000)
    group = fed(group, TimerExpired("group", timer.kind, timer.subject, timer.number))
    assert list(group.members) == ["b"]
    assert group.epoch == 4
    assert answered(group, "b", 2)[1].assignment == REST


def test_k2_a_timer_of_a_revocation_that_is_over_fences_nobody() -> None:
    group = fed(halved(), beat_of("a", 2))
    (timer,) = timers(group)
    fired = TimerExpired("group", timer.kind, timer.subject, timer.number)
    group = fed(group, beat_of("a", 2, owned=HALF))
    assert timers(group) == ()
    assert fed(group, fired) is group


def test_k2_each_revocation_has_a_timer_of_its_own_even_at_one_epoch() -> None:
    group = fed(halved(), beat_of("a", 2))
    (first,) = timers(group)
    group = fed(group, join_of("c"), shared(4, {"c": {ORDERS: (0, 1)}}))
    group = fed(group, beat_of("a", 2, owned=HALF))
    (second,) = timers(group)
    assert group.members["a"].epoch == 2
    assert second.number != first.number
    assert fed(group, TimerExpired("group", first.kind, "a", first.number)) is group


def test_who_stops_reading_while_it_revokes_has_more_to_revoke() -> None:
    group = fed(ConsumerGroup("group"), join_of("a", names=("clicks", "orders")))
    group = fed(group, shared(2, {"a": {ORDERS: (0, 1), CLICKS: (0, 1)}}), beat_of("a", 1))
    group = fed(group, join_of("b"), shared(3, {"a": {ORDERS: (0,), CLICKS: (0, 1)}}))
    group, answer = answered(group, "a", 2)
    assert answer.assignment == ((ORDERS, (0,)), (CLICKS, (0, 1)))
    group, answer = answered(group, "a", 2, names=("clicks",))
    assert answer.assignment == ((CLICKS, (0, 1)),)
    assert pairs(group.members["a"].revoking) == {(ORDERS, 0), (ORDERS, 1)}
    group, answer = answered(group, "a", 2, names=("orders", "clicks"))
    assert answer.assignment is None, "not before it was let go of"


def test_a_thousand_members_and_partitions_join_and_reconcile_within_five_seconds() -> None:
    members = [f"member-{number:04}" for number in range(1_000)]
    group = ConsumerGroup("group")
    begun = time.process_time()
    for member in members:
        group, _ = step(group, join_of(member))
    topics = {"orders": (ORDERS, 1_000)}
    group, _ = step(group, target_event(group, topics=topics, assignor_default="uniform"))
    for member in members:
        group, _ = step(group, beat_of(member, group.members[member].epoch))
    assert state_name(group) == "Stable"
    assert len(group.owners[ORDERS]) == 1_000
    assert time.process_time() - begun < 5


def test_a_steady_heartbeat_costs_microseconds() -> None:
    group = stable("a", "b")
    event = beat_of("a", group.members["a"].epoch)
    best_s = 1.0
    for _ in range(20):
        begun = time.perf_counter()
        for _ in range(100):
            assert step(group, event)[0] is group
        best_s = min(best_s, (time.perf_counter() - begun) / 100)
    assert best_s < 20e-6
