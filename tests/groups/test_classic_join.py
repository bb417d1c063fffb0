"""Joins of classic groups, one claim and one row of the compatibility page each."""

import pytest
from tests.groups.classic_build import (
    again,
    feed,
    fire,
    join_of,
    join_timer,
    joined,
    leave_of,
    refuse,
    stable,
    sync_of,
)

from lakelog.groups.classic import answer_join, step
from lakelog.groups.events import JoinResult, TimerExpired
from lakelog.groups.state import ClassicGroup, ClassicState, TimerKind
from lakelog.model.errors import ErrorCode

NEW = ClassicGroup("group")
PREPARING, COMPLETING = ClassicState.PREPARING, ClassicState.COMPLETING
STABLE, EMPTY = ClassicState.STABLE, ClassicState.EMPTY


def preparing() -> ClassicGroup:
    """Two members of generation 2, of whom `a` leads; `c` is new and the others are waited for."""
    return feed(stable(join_of("a"), join_of("b")), join_of("c"))


def test_row_32_an_unknown_id_that_nobody_minted_is_refused_in_every_state() -> None:
    for group in (NEW, stable(join_of("a")), joined(join_of("a")), preparing()):
        assert refuse(group, again("ghost")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_row_32_no_protocols_and_an_empty_type_are_refused() -> None:
    for event in (join_of("a", protocols=()), join_of("a", protocol_type="")):
        assert refuse(NEW, event) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert refuse(stable(join_of("x")), event) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_row_39_a_protocol_that_not_all_members_support_is_refused() -> None:
    group = stable(join_of("a", protocols=(("range", b""), ("sticky", b""))), join_of("b"))
    wrong_name = join_of("c", protocols=(("sticky", b""),))
    assert refuse(group, wrong_name) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wrong_type = join_of("c", protocol_type="connect")
    assert refuse(group, wrong_type) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert feed(group, join_of("c")).state is PREPARING


def test_row_33_a_generation_is_counted_when_a_rebalance_is_complete() -> None:
    group = stable(join_of("a"))
    assert group.generation == 1
    group = feed(group, join_of("b"), join_of("c"))
    assert (group.state, group.generation) == (PREPARING, 1)
    group = feed(group, again("a"))
    assert (group.state, group.generation) == (COMPLETING, 2)


def test_without_a_delay_the_only_member_completes_in_the_same_step() -> None:
    group = feed(NEW, join_of("a"))
    assert (group.state, group.generation, group.leader) == (COMPLETING, 1, "a")
    answer = answer_join(group, "a")
    assert answer is not None
    assert (answer.generation, answer.leader, answer.protocol_name) == (1, "a", "range")
    assert answer.members == (("a", None, b"subscription"),)


def test_row_87_the_initial_delay_waits_for_more_members() -> None:
    group = feed(NEW, join_of("a", delay_ms=3_000, rebalance_ms=10_000))
    assert (group.state, join_timer(group)) == (PREPARING, (1, 3_000))
    assert answer_join(group, "a") is None
    group = feed(group, join_of("b"))
    assert group.state is PREPARING
    group = fire(group)
    assert (group.state, join_timer(group)) == (PREPARING, (2, 3_000))
    group = fire(group)
    assert (group.state, group.generation, list(group.members)) == (COMPLETING, 1, ["a", "b"])


def test_row_87_the_initial_delay_is_extended_up_to_the_rebalance_timeout() -> None:
    group = feed(NEW, join_of("0", delay_ms=3_000, rebalance_ms=10_000))
    waited_ms = 0
    for number in range(1, 10):
        if group.state is COMPLETING:
            break
        waited_ms += join_timer(group)[1]
        group = fire(feed(group, join_of(str(number))))
    assert (group.state, waited_ms) == (COMPLETING, 10_000)
    assert len(group.members) == 5


def test_row_87_the_initial_delay_ends_when_nobody_else_came() -> None:
    group = fire(feed(NEW, join_of("a", delay_ms=3_000)))
    assert (group.state, group.generation) == (COMPLETING, 1)


def test_row_87_a_first_member_that_leaves_little_time_gets_no_extension() -> None:
    group = feed(NEW, join_of("a", delay_ms=3_000, rebalance_ms=2_000), join_of("b"))
    assert fire(group).state is COMPLETING


def test_a_timer_that_is_no_longer_the_present_one_is_refused() -> None:
    group = feed(NEW, join_of("a", delay_ms=3_000), join_of("b"))
    later = fire(group)
    stale = TimerExpired("group", TimerKind.JOIN, "", 1)
    assert refuse(later, stale) is ErrorCode.ILLEGAL_GENERATION
    assert refuse(stable(join_of("a")), stale) is ErrorCode.ILLEGAL_GENERATION
    assert refuse(NEW, TimerExpired("group", TimerKind.SYNC, "", 0)) is ErrorCode.ILLEGAL_GENERATION
    other = TimerExpired("group", TimerKind.REVOKE, "", 2)
    assert refuse(later, other) is ErrorCode.ILLEGAL_GENERATION


def test_the_last_member_that_is_waited_for_completes_the_rebalance() -> None:
    group = feed(preparing(), again("b"))
    assert group.state is PREPARING
    group = feed(group, again("a"))
    assert (group.state, group.generation, group.leader) == (COMPLETING, 3, "a")
    assert not any(member.is_joined or member.is_new for member in group.members.values())


def test_the_time_to_join_is_the_greatest_that_a_member_asked_for_as_it_began() -> None:
    group = stable(join_of("a", rebalance_ms=20_000), join_of("b", rebalance_ms=30_000))
    number = group.join_number
    group = feed(group, join_of("c"))
    # A member that asks for more while it runs does not move it.
    group = feed(group, again("a", rebalance_ms=90_000))
    assert join_timer(group) == (number + 1, 30_000)


def test_dynamic_members_that_did_not_join_in_time_are_out() -> None:
    group = fire(preparing())
    assert (group.state, group.generation, list(group.members)) == (COMPLETING, 3, ["c"])
    assert group.leader == "c"
    gone = answer_join(group, "a")
    assert gone is not None
    assert gone.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_joined_again_leads_on_and_else_the_first_that_did() -> None:
    group = stable(join_of("a"), join_of("b"), join_of("c"))
    kept = fire(feed(group, join_of("d"), again("c"), again("a")))
    assert (kept.leader, list(kept.members)) == ("a", ["a", "c", "d"])
    moved = fire(feed(group, join_of("d"), again("c"), again("b")))
    assert (moved.leader, list(moved.members)) == ("b", ["b", "c", "d"])


def test_row_85_static_members_are_not_dropped_for_joining_late() -> None:
    group = stable(join_of("a", instance="one"), join_of("b"), join_of("c"))
    group = fire(feed(group, again("b", protocols=(("range", b"changed"),))))
    assert (group.state, list(group.members)) == (COMPLETING, ["a", "b"])
    assert group.leader == "b"


def test_row_85_without_anybody_to_lead_the_time_to_join_begins_anew() -> None:
    group = stable(join_of("a", instance="one"), join_of("b"))
    group = feed(group, join_of("c"), leave_of(("c", None)))
    number, _ = join_timer(group)
    group = fire(group)
    assert (group.state, list(group.members), group.generation) == (PREPARING, ["a"], 2)
    assert join_timer(group) == (number + 1, 10_000)
    assert feed(group, again("a")).state is COMPLETING


def test_row_83_in_completing_the_same_protocols_get_the_same_generation() -> None:
    group = joined(join_of("a"), join_of("b"))
    for member_id, known in (("a", 2), ("b", 0)):
        after, outcome = step(group, again(member_id))
        assert after is group
        assert outcome == JoinResult(ErrorCode.NONE, member_id)
        answer = answer_join(after, member_id)
        assert answer is not None
        assert (answer.generation, answer.leader, len(answer.members)) == (2, "a", known)


def test_row_83_in_completing_other_protocols_rebalance() -> None:
    group = feed(joined(join_of("a"), join_of("b")), again("b", protocols=(("range", b"new"),)))
    assert (group.state, group.members["b"].is_joined) == (PREPARING, True)
    assert group.members["b"].protocols == (("range", b"new"),)


def test_row_83_in_stable_a_follower_with_the_same_protocols_disturbs_nobody() -> None:
    group = stable(join_of("a"), join_of("b"))
    after, _ = step(group, again("b"))
    assert after is group
    answer = answer_join(after, "b")
    assert answer is not None
    assert (answer.generation, answer.members) == (group.generation, ())


def test_row_83_in_stable_a_leader_and_changed_metadata_rebalance() -> None:
    group = stable(join_of("a"), join_of("b"))
    assert feed(group, again("a")).state is PREPARING
    assert feed(group, again("b", protocols=(("range", b"new"),))).state is PREPARING


def test_row_83_in_preparing_a_second_join_of_a_member_changes_nothing() -> None:
    group = preparing()
    assert step(group, again("c"))[0] is group
    assert step(group, join_of("c"))[0] is group


@pytest.mark.parametrize("instance", [None, "one"])
def test_a_join_that_is_applied_twice_is_one_member(instance: str | None) -> None:
    event = join_of("b", instance=instance)
    once = feed(stable(join_of("a")), event)
    assert step(once, event)[0] is once
    complete = feed(once, again("a"))
    assert step(complete, event)[0] is complete


def test_the_broker_of_the_last_join_holds_the_member() -> None:
    group = feed(joined(join_of("a"), join_of("b")), again("b", holder=2))
    assert (group.members["b"].holder, group.members["b"].holder_epoch) == (2, 1)
    assert group.state is COMPLETING
    group = feed(stable(join_of("a"), join_of("b")), again("b", holder=2))
    assert (group.state, group.members["b"].holder_epoch) == (STABLE, 1)
    group = feed(preparing(), again("c", holder=2))
    assert (group.state, group.members["c"].holder_epoch) == (PREPARING, 1)


def test_row_85_a_static_follower_comes_back_without_a_rebalance() -> None:
    group = stable(join_of("a"), join_of("b", instance="one"))
    after, outcome = step(group, join_of("b2", instance="one", holder=3))
    assert outcome == JoinResult(ErrorCode.NONE, "b2")
    assert (after.state, after.generation, after.leader) == (STABLE, group.generation, "a")
    assert after.members["b2"].assignment == b"b"
    assert after.members["b2"].holder == 3
    assert after.members["b2"].is_synced  # It may sync again, and nobody waits for it.
    answer = answer_join(after, "b2", instance_id="one")
    assert answer is not None
    assert (answer.code, answer.generation) == (ErrorCode.NONE, group.generation)


def test_row_85_a_static_leader_comes_back_and_does_not_assign_anew() -> None:
    group = stable(join_of("a", instance="one"), join_of("b"))
    after, outcome = step(group, join_of("a2", instance="one"))
    assert outcome == JoinResult(ErrorCode.NONE, "a2", leader="a", skip_assignment=True)
    assert (after.state, after.leader) == (STABLE, "a2")
    answer = answer_join(after, "a2")
    assert answer is not None
    assert [member_id for member_id, _, _ in answer.members] == ["b", "a2"]


def test_row_85_the_old_id_is_fenced_with_its_instance_and_unknown_without() -> None:
    group = feed(stable(join_of("a"), join_of("b", instance="one")), join_of("b2", instance="one"))
    assert refuse(group, again("b", instance="one")) is ErrorCode.FENCED_INSTANCE_ID
    assert refuse(group, again("b")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refuse(group, again("b2", instance="other")) is ErrorCode.UNKNOWN_MEMBER_ID
    for instance, code in (
        ("one", ErrorCode.FENCED_INSTANCE_ID),
        (None, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        answer = answer_join(group, "b", instance_id=instance)
        assert answer is not None
        assert answer.code is code


def test_row_85_a_static_member_that_changes_the_chosen_protocol_rebalances() -> None:
    both = (("range", b""), ("sticky", b""))
    group = stable(join_of("a", protocols=both), join_of("b", protocols=both, instance="one"))
    assert group.protocol_name == "range"
    after = feed(group, join_of("b2", instance="one", protocols=(("sticky", b""),)))
    assert (after.state, after.members["b2"].is_joined) == (PREPARING, True)
    after = feed(after, again("a", protocols=both))
    assert (after.state, after.protocol_name) == (COMPLETING, "sticky")


def test_row_85_in_completing_a_static_member_that_comes_back_rebalances() -> None:
    group = joined(join_of("a"), join_of("b", instance="one"))
    group = feed(group, join_of("b2", instance="one"))
    assert (group.state, group.members["b2"].is_joined) == (PREPARING, True)
    group = feed(group, again("a"))
    assert (group.state, group.generation) == (COMPLETING, 3)


def test_row_85_in_preparing_a_static_member_that_comes_back_counts_as_joined() -> None:
    group = stable(join_of("a"), join_of("b", instance="one"))
    group = feed(group, again("a"), join_of("b2", instance="one"))
    assert (group.state, list(group.members)) == (COMPLETING, ["a", "b2"])


def test_row_85_a_static_member_that_had_not_synced_is_waited_for_under_its_new_id() -> None:
    group = joined(join_of("a"), join_of("b", instance="one"))
    group = feed(group, sync_of("a", 2, {"b": b"share"}), join_of("b2", instance="one"))
    assert group.state is STABLE
    group = fire(group)
    assert (group.state, list(group.members)) == (PREPARING, ["a"])


def test_row_32_a_full_group_takes_nobody_else() -> None:
    group = stable(join_of("a"), join_of("b"))
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refuse(group, join_of("c", members_max=2)) is full
    assert feed(group, join_of("c", members_max=3)).state is PREPARING
    assert feed(group, again("b", members_max=1)) is group
    assert refuse(joined(join_of("a"), join_of("b")), join_of("c", members_max=2)) is full
    assert feed(NEW, join_of("a", members_max=0)).members


def test_row_32_if_the_limit_was_lowered_the_last_to_join_again_is_turned_away() -> None:
    group = feed(stable(join_of("a"), join_of("b"), join_of("c")), again("a"), again("b"))
    assert group.state is PREPARING
    after, outcome = step(group, again("c", members_max=2))
    assert outcome == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert (after.state, list(after.members)) == (COMPLETING, ["a", "b"])
    # One that already waits stays.
    assert feed(group, again("b", members_max=2)) is group


@pytest.mark.parametrize(
    ("lists", "chosen"),
    [
        (("range sticky", "range sticky", "sticky range"), "range"),
        (("sticky range", "range sticky", "sticky range"), "sticky"),
        (("sticky range", "range"), "range"),
        # Ties go where Kafka's hash table puts them.
        (("cooperative-sticky range", "range cooperative-sticky"), "range"),
        (("roundrobin range", "range roundrobin"), "range"),
        (("range sticky", "sticky range"), "sticky"),
    ],
)
def test_the_protocol_with_most_votes_among_the_common_ones_is_chosen(
    lists: tuple[str, ...], chosen: str
) -> None:
    joins = [
        join_of(str(number), protocols=tuple((name, b"") for name in names.split()))
        for number, names in enumerate(lists)
    ]
    assert joined(*joins).protocol_name == chosen
    assert joined(*reversed(joins)).protocol_name == chosen


def test_a_name_that_a_member_lists_twice_counts_once() -> None:
    twice = (("range", b"first"), ("range", b"second"))
    group = joined(join_of("a", protocols=twice), join_of("b"))
    assert group.protocol_name == "range"
    group = feed(group, leave_of(("a", None)), again("b"))
    assert group.support == {"range": 1}


def test_a_member_of_the_last_generation_hears_of_it_although_the_next_rebalance_began() -> None:
    group = feed(joined(join_of("a"), join_of("b")), join_of("c"))
    answer = answer_join(group, "a")
    assert answer is not None
    assert (answer.code, answer.generation) == (ErrorCode.NONE, 2)
    assert [member_id for member_id, _, _ in answer.members] == ["a", "b"]
    assert answer_join(group, "c") is None


def test_an_emptied_group_keeps_its_type_and_counts_on() -> None:
    group = feed(stable(join_of("a", protocol_type="connect")), leave_of(("a", None)))
    assert (group.state, group.generation, group.protocol_type) == (EMPTY, 2, "connect")
    assert (group.protocol_name, group.leader) == (None, None)
    group = feed(group, join_of("b", protocol_type="consumer"))
    assert (group.generation, group.protocol_type) == (3, "consumer")
