"""Syncs of classic groups: who gets which assignment, when, and who is out for not asking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.groups.classic_build import (
    again,
    feed,
    fire,
    join_of,
    joined,
    leave_of,
    refuse,
    stable,
    sync_of,
)

from lakelog.groups.classic import answer_sync, step, timers
from lakelog.groups.events import (
    GroupEventResult,
    Sync,
    SyncAnswer,
    TimerExpired,
    encode_group_event,
)
from lakelog.groups.parts import sync_parts
from lakelog.groups.state import ClassicGroup, ClassicState, TimerKind
from lakelog.model.errors import ErrorCode

PREPARING, COMPLETING = ClassicState.PREPARING, ClassicState.COMPLETING
STABLE, EMPTY = ClassicState.STABLE, ClassicState.EMPTY


def pair() -> ClassicGroup:
    """Generation 2 of `a`, who leads, and `b`; nobody has an assignment yet."""
    return joined(join_of("a"), join_of("b"))


def shares(group: ClassicGroup) -> dict[str, bytes]:
    return {member.member_id: member.assignment for member in group.members.values()}


def test_row_34_a_follower_waits_for_the_leader() -> None:
    group = feed(pair(), sync_of("b", 2))
    assert group.state is COMPLETING
    assert answer_sync(group, "b", generation=2) is None
    group = feed(group, sync_of("a", 2, {"a": b"left", "b": b"right"}))
    assert group.state is STABLE
    expected = SyncAnswer(ErrorCode.NONE, "consumer", "range", b"right")
    assert answer_sync(group, "b", generation=2) == expected
    assert timers(group) == ()


def test_row_34_in_stable_a_sync_gets_the_present_assignment_and_changes_no_other() -> None:
    group = feed(pair(), sync_of("a", 2, {"a": b"left", "b": b"right"}))
    group = feed(group, sync_of("b", 2))
    again, outcome = step(group, sync_of("a", 2, {"a": b"everything"}))
    assert again is group
    assert outcome == GroupEventResult(ErrorCode.NONE)
    assert shares(again) == {"a": b"left", "b": b"right"}


def test_row_34_preparing_refuses_and_so_do_wrong_generations_and_strangers() -> None:
    group = pair()
    assert refuse(group, sync_of("a", 1)) is ErrorCode.ILLEGAL_GENERATION
    assert refuse(group, sync_of("a", 3)) is ErrorCode.ILLEGAL_GENERATION
    assert refuse(group, sync_of("c", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refuse(ClassicGroup("group"), sync_of("a", 0)) is ErrorCode.UNKNOWN_MEMBER_ID
    group = feed(group, join_of("c"))
    assert refuse(group, sync_of("a", 2)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_row_34_a_newer_client_that_names_another_protocol_is_refused() -> None:
    group = pair()
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert refuse(group, sync_of("a", 2, protocol_type="connect")) is inconsistent
    assert refuse(group, sync_of("a", 2, protocol_name="sticky")) is inconsistent
    same = sync_of("a", 2, protocol_type="consumer", protocol_name="range")
    assert feed(group, same).state is STABLE


def test_row_85_a_sync_under_a_replaced_id_is_fenced() -> None:
    group = feed(stable(join_of("a"), join_of("b", instance="one")), join_of("b2", instance="one"))
    fenced = refuse(group, sync_of("b", 2, instance="one"))
    assert fenced is ErrorCode.FENCED_INSTANCE_ID
    parked = answer_sync(group, "b", generation=2, instance_id="one")
    assert parked == SyncAnswer(ErrorCode.FENCED_INSTANCE_ID)


def test_members_that_the_leader_leaves_out_get_nothing_and_strangers_are_ignored() -> None:
    group = feed(pair(), sync_of("a", 2, {"b": b"all", "ghost": b"some"}))
    assert shares(group) == {"a": b"", "b": b"all"}


def test_a_followers_list_is_not_the_leaders_word() -> None:
    group = feed(pair(), sync_of("b", 2, {"b": b"everything"}))
    assert (group.state, shares(group)) == (COMPLETING, {"a": b"", "b": b""})


def test_an_assignment_is_forgotten_with_its_generation() -> None:
    group = feed(stable(join_of("a")), join_of("b"))
    assert shares(group) == {"a": b"a", "b": b""}
    group = feed(group, again("a"))
    assert shares(group) == {"a": b"", "b": b""}
    assert not any(member.is_synced for member in group.members.values())


def test_a_parked_sync_hears_of_the_rebalance_that_passed_it_by() -> None:
    group = feed(pair(), sync_of("b", 2))
    rebalancing = SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
    preparing = feed(group, join_of("c"))
    assert answer_sync(preparing, "b", generation=2) == rebalancing
    later = feed(group, leave_of(("a", None)), join_of("b", is_new=False))
    assert (later.state, later.generation) == (COMPLETING, 3)
    assert answer_sync(later, "b", generation=2) == rebalancing
    assert answer_sync(later, "b", generation=4) == SyncAnswer(ErrorCode.ILLEGAL_GENERATION)
    gone = SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID)
    assert answer_sync(later, "a", generation=2) == gone
    assert answer_sync(None, "a", generation=2) == gone


def test_row_88_who_does_not_sync_in_time_is_out_and_the_others_rebalance() -> None:
    group = feed(pair(), sync_of("a", 2, {"a": b"left", "b": b"right"}))
    (timer,) = timers(group)
    assert (timer.kind, timer.number, timer.duration_ms) == (TimerKind.SYNC, 2, 10_000)
    group = fire(group)
    assert (group.state, list(group.members), group.generation) == (PREPARING, ["a"], 2)


def test_row_88_a_leader_that_died_between_join_and_sync_is_out() -> None:
    group = fire(feed(pair(), sync_of("b", 2)))
    assert (group.state, list(group.members), group.leader) == (PREPARING, ["b"], "b")


def test_row_88_if_nobody_syncs_the_group_is_empty() -> None:
    group = fire(pair())
    assert (group.state, group.members, group.generation) == (EMPTY, {}, 3)


def test_row_88_a_sync_timer_of_an_older_generation_is_refused() -> None:
    group = stable(join_of("a"), join_of("b"))
    for state in (group, pair(), feed(group, join_of("c"))):
        stale = TimerExpired("group", TimerKind.SYNC, "", 1)
        assert refuse(state, stale) is ErrorCode.ILLEGAL_GENERATION
    # Nobody is waited for: the timer of this generation has nothing to say either.
    settled = TimerExpired("group", TimerKind.SYNC, "", group.generation)
    assert refuse(group, settled) is ErrorCode.ILLEGAL_GENERATION


def part(number: int, given: dict[str, bytes], *, attempt: int = 7, is_last: bool = False) -> Sync:
    return sync_of("a", 2, given, attempt=attempt, part=number, is_last=is_last)


def test_parts_count_as_a_whole_with_the_last_one() -> None:
    group = feed(pair(), part(0, {"a": b"left"}))
    assert group.state is COMPLETING
    assert answer_sync(group, "a", generation=2) is None
    assert timers(group)
    group = feed(group, part(1, {"b": b"right"}, is_last=True))
    assert (group.state, shares(group)) == (STABLE, {"a": b"left", "b": b"right"})


def test_a_part_that_is_applied_twice_counts_once() -> None:
    group = feed(pair(), part(0, {"a": b"left"}))
    assert step(group, part(0, {"a": b"left"}))[0] is group


def test_the_half_of_an_attempt_is_not_mixed_into_the_next_one() -> None:
    group = feed(pair(), part(0, {"a": b"everything"}))
    whole = feed(group, sync_of("a", 2, {"b": b"everything"}))
    assert (whole.state, shares(whole)) == (STABLE, {"a": b"", "b": b"everything"})
    group = feed(group, part(0, {"b": b"everything"}, attempt=8))
    assert shares(group) == {"a": b"", "b": b"everything"}
    # The first attempt goes on elsewhere: it has lost.
    late = refuse(group, part(1, {"a": b"rest"}, is_last=True))
    assert late is ErrorCode.REBALANCE_IN_PROGRESS
    group = feed(group, part(1, {}, attempt=8, is_last=True))
    assert (group.state, shares(group)) == (STABLE, {"a": b"", "b": b"everything"})


def test_a_part_without_the_one_before_it_is_refused() -> None:
    assert refuse(pair(), part(1, {"a": b"left"})) is ErrorCode.REBALANCE_IN_PROGRESS
    group = feed(pair(), part(0, {"a": b"left"}))
    assert refuse(group, part(2, {"b": b"right"})) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_died_between_two_parts_is_out() -> None:
    group = fire(feed(pair(), sync_of("b", 2), part(0, {"a": b"left"})))
    assert (group.state, list(group.members)) == (PREPARING, ["b"])


@pytest.mark.parametrize("bytes_max", [200, 300, 1_000])
def test_a_large_sync_is_cut_into_parts_that_fit_and_say_the_same(bytes_max: int) -> None:
    names = [f"member-{number}" for number in range(40)]
    group = joined(*(join_of(name) for name in names))
    given = {name: bytes([number]) * number for number, name in enumerate(names)}
    event = sync_of(names[0], group.generation, given)
    parts = sync_parts(event, bytes_max=bytes_max, attempt=2**62)
    assert len(parts) > 1
    assert all(len(encode_group_event(part)) <= bytes_max for part in parts)
    assert shares(feed(group, *parts)) == given
    assert feed(group, *parts) == feed(group, event)


def test_a_part_is_never_larger_than_it_may_be() -> None:
    name = "n" * 40
    event = sync_of(name, 2**30, {name: b"x" * 70_000, name * 2: b"x" * 70_000})
    whole_bytes = len(encode_group_event(event))
    for bytes_max in range(whole_bytes // 2, whole_bytes // 2 + 200):
        for part in sync_parts(event, bytes_max=bytes_max, attempt=2**62):
            assert len(encode_group_event(part)) <= bytes_max
    assert len(sync_parts(event, bytes_max=whole_bytes // 2 + 200, attempt=2**62)) == 2


def test_a_sync_that_fits_stays_one_and_one_that_cannot_be_cut_is_none() -> None:
    event = sync_of("a", 2, {"a": b"x" * 500})
    assert sync_parts(event, bytes_max=1_000, attempt=1) == (event,)
    assert sync_parts(event, bytes_max=500, attempt=1) == ()
    nothing = sync_of("a", 2)
    assert sync_parts(nothing, bytes_max=1_000, attempt=1) == (nothing,)


@given(
    st.lists(
        st.lists(st.integers(min_value=0, max_value=3), min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.integers(min_value=0, max_value=2), max_size=12),
)
def test_however_attempts_interleave_one_of_them_counts_whole_or_none(
    attempts: list[list[int]], order: list[int]
) -> None:
    """An attempt is a list of parts, each naming one member; brokers send theirs in turn."""
    names = [f"member-{number}" for number in range(4)]
    group = joined(*(join_of(name) for name in names))
    meant = []
    waiting = []
    for number, parts in enumerate(attempts):
        pieces = [{names[place]: b"%d" % number} for place in parts]
        whole = dict.fromkeys(names, b"")
        for piece in pieces:
            whole |= piece
        meant.append(whole)
        waiting.append(
            [
                sync_of(
                    names[0],
                    group.generation,
                    piece,
                    attempt=number + 1,
                    part=place,
                    is_last=place == len(pieces) - 1,
                )
                for place, piece in enumerate(pieces)
            ]
        )
    for number in order:
        if waiting[number % len(waiting)]:
            group, _ = step(group, waiting[number % len(waiting)].pop(0))
    if group.state is STABLE:
        assert shares(group) in meant
