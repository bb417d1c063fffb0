"""Everything of consumer groups but heartbeats: events of brokers, commits, states, bytes."""

import msgspec
import pytest
from tests.groups.consumer_build import (
    CLICKS,
    DECODER,
    ENCODER,
    ORDERS,
    answered,
    beat_of,
    commit_of,
    fed,
    feed,
    join_of,
    retargeted,
    shared,
    stable,
)

from lakelog.groups.consumer import (
    fingerprint,
    judge_commit,
    judge_fetch,
    needs_target,
    state_name,
    step,
    subscribed,
    timers,
    unresolved,
)
from lakelog.groups.events import (
    Adopt,
    Expire,
    GroupEventResult,
    Leave,
    LeaveResult,
    Resolved,
    TimerExpired,
    TopicsChanged,
    decode_group_event,
    encode_group_event,
)
from lakelog.groups.state import ConsumerGroup, Group, TimerKind
from lakelog.model.errors import ErrorCode

DONE, STALE = GroupEventResult(ErrorCode.NONE), GroupEventResult(ErrorCode.ILLEGAL_GENERATION)
NO_MEMBER = GroupEventResult(ErrorCode.UNKNOWN_MEMBER_ID)
HALF = ((ORDERS, (0, 1)),)


def revoking() -> ConsumerGroup:
    """Member "a" got all partitions at epoch 1 and is to let go of two of them."""
    group = fed(stable("a"), join_of("b"))
    group = fed(group, shared(3, {"a": {ORDERS: (0, 1)}, "b": {ORDERS: (2, 3)}}))
    return fed(group, beat_of("a", 2))


def test_rule_13_a_group_is_its_bytes_with_ids_and_numbers_as_keys() -> None:
    group = fed(revoking(), join_of("c", pattern="c.*"), Resolved("group", "c.*", ("clicks",)))
    again = DECODER.decode(ENCODER.encode(group))
    assert again == group
    assert ENCODER.encode(again) == ENCODER.encode(group)
    assert isinstance(next(iter(again.owners)), bytes)
    assert [type(partition) for partition in again.owners[ORDERS]] == [int] * 4
    assert again.members["a"].revoking == {ORDERS: {2: 2, 3: 2}}
    either = msgspec.msgpack.decode(ENCODER.encode(group), type=Group)
    assert either == group


def test_a_target_and_a_heartbeat_are_their_bytes() -> None:
    for event in (shared(3, {"a": {ORDERS: (0, 1)}}), join_of("a", owned=HALF)):
        assert decode_group_event(memoryview(encode_group_event(event))) == event


def test_k4_a_session_that_ended_removes_the_member() -> None:
    group = stable("a", "b")
    holder_epoch = group.members["a"].holder_epoch
    after, outcome = feed(group, Expire("group", "a", holder_epoch))
    assert outcome == DONE
    assert (list(after.members), after.epoch) == (["b"], group.epoch + 1)
    assert set(after.owners[ORDERS].values()) == {"b"}
    assert feed(after, Expire("group", "a", holder_epoch)) == (after, NO_MEMBER)


def test_k4_an_expiry_by_a_former_holder_is_refused() -> None:
    group = stable("a")
    expiry = Expire("group", "a", group.members["a"].holder_epoch)
    moved = fed(group, Adopt("group", "a", 2))
    assert feed(moved, expiry) == (moved, STALE)


def test_k4_adoption_changes_the_holder_and_nothing_else_and_only_once() -> None:
    group = stable("a")
    moved, outcome = feed(group, Adopt("group", "a", 2))
    assert outcome == DONE
    assert moved.members["a"].holder == 2
    assert (moved.epoch, moved.owners) == (group.epoch, group.owners)
    assert feed(moved, Adopt("group", "a", 2)) == (moved, DONE)
    assert feed(moved, Adopt("group", "x", 2)) == (moved, NO_MEMBER)


def test_row_86_an_administrator_removes_members_with_one_rebalance() -> None:
    group = fed(stable("a", "b"), join_of("c", instance_id="one"), join_of("d"))
    leave = Leave("group", (("a", None), ("", "one"), ("x", None), ("x", "one"), ("", "two")))
    after, outcome = feed(group, leave)
    gone, unknown, fenced = (
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    )
    assert outcome == LeaveResult((gone, gone, unknown, fenced, unknown), ("a", "c", "x", "x", ""))
    assert (list(after.members), after.epoch) == (["b", "d"], group.epoch + 1)


def test_row_86_a_leave_of_nobody_changes_nothing_and_one_twice_counts_once() -> None:
    group = stable("a")
    assert feed(group, Leave("group", (("x", None),)))[0] is group
    after, outcome = feed(group, Leave("group", (("a", None), ("a", None))))
    assert outcome == LeaveResult((ErrorCode.NONE, ErrorCode.NONE), ("a", "a"))
    assert after.epoch == group.epoch + 1


def test_timers_of_other_kinds_and_of_strangers_change_nothing() -> None:
    group = revoking()
    (timer,) = timers(group)
    wrong = TimerExpired("group", TimerKind.SYNC, "a", timer.number)
    assert feed(group, wrong) == (group, STALE)
    stranger = TimerExpired("group", TimerKind.REVOKE, "x", timer.number)
    assert feed(group, stranger) == (group, NO_MEMBER)


def test_k7_a_pattern_that_matches_other_topics_is_a_rebalance() -> None:
    group = fed(ConsumerGroup("group"), join_of("a", pattern="o.*"))
    assert (unresolved(group), subscribed(group)) == (("o.*",), frozenset())
    group, outcome = feed(group, Resolved("group", "o.*", ("orders", "offers")))
    assert (outcome, group.epoch, unresolved(group)) == (DONE, 2, ())
    assert subscribed(group) == {"orders", "offers"}
    assert feed(group, Resolved("group", "o.*", ("offers", "orders")))[0] is group
    assert fed(group, Resolved("group", "o.*", ())).epoch == 3


def test_k7_a_pattern_that_matches_nothing_is_resolved_without_a_rebalance() -> None:
    group = fed(ConsumerGroup("group"), join_of("a", pattern="x"), Resolved("group", "x", ()))
    assert (group.epoch, unresolved(group)) == (1, ())


def test_k7_a_pattern_that_nobody_has_is_not_resolved() -> None:
    group = stable("a")
    assert feed(group, Resolved("group", "x", ("orders",))) == (group, STALE)


def test_patterns_go_with_the_last_member_that_has_them() -> None:
    group = fed(
        ConsumerGroup("group"),
        join_of("a", pattern="o.*"),
        join_of("b", pattern="o.*"),
        Resolved("group", "o.*", ("orders",)),
        beat_of("a", -1),
    )
    assert group.resolved
    assert fed(group, beat_of("b", -1)).resolved == {}


def test_k7_other_topics_are_one_rebalance_however_often_they_are_told() -> None:
    topics = {"orders": (ORDERS, 4)}
    group = retargeted(fed(ConsumerGroup("group"), join_of("a")), topics)
    assert group.fingerprint == fingerprint(topics)
    assert feed(group, TopicsChanged("group", fingerprint(topics))) == (group, DONE)
    more = fingerprint({"orders": (ORDERS, 5)})
    group = fed(group, TopicsChanged("group", more))
    assert (group.epoch, needs_target(group)) == (3, True)
    assert feed(group, TopicsChanged("group", more)) == (group, DONE)
    empty = fed(group, beat_of("a", -1))
    assert feed(empty, TopicsChanged("group", more)) == (empty, DONE)


def test_row_76_a_group_is_empty_assigning_reconciling_or_stable() -> None:
    group = ConsumerGroup("group")
    assert state_name(group) == "Empty"
    group = fed(group, join_of("a"))
    assert state_name(group) == "Assigning"
    group = retargeted(group, {"orders": (ORDERS, 4)})
    assert state_name(group) == "Reconciling"
    group = fed(group, beat_of("a", 1))
    assert state_name(group) == "Stable"
    group = fed(group, join_of("b"))
    assert state_name(group) == "Assigning"
    assert state_name(fed(group, beat_of("a", -1), beat_of("b", -1))) == "Empty"


def test_the_topics_of_a_group_are_those_of_all_its_members() -> None:
    group = fed(ConsumerGroup("group"), join_of("a"), join_of("b", names=("clicks", "orders")))
    assert subscribed(group) == {"clicks", "orders"}
    assert subscribed(fed(group, beat_of("b", -1))) == {"orders"}


def test_row_38_a_commit_of_the_members_epoch_is_good_for_any_partition() -> None:
    assert judge_commit(stable("a"), commit_of("a", 2, (CLICKS, 9))) is ErrorCode.NONE


def test_row_38_a_commit_of_a_newer_epoch_or_of_a_stranger_is_refused() -> None:
    group = stable("a")
    stale, unknown = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID
    assert judge_commit(group, commit_of("a", 3, (ORDERS, 0))) is stale
    assert judge_commit(group, commit_of("x", 2, (ORDERS, 0))) is unknown
    assert judge_commit(group, commit_of("", -1, (ORDERS, 0))) is unknown
    assert judge_commit(group, commit_of("a", -1, (ORDERS, 0))) is stale


def test_row_38_a_member_needs_a_client_that_knows_epochs_to_commit() -> None:
    group = stable("a")
    old = commit_of("a", 2, (ORDERS, 0), api_version=8)
    assert judge_commit(group, old) is ErrorCode.UNSUPPORTED_VERSION
    stranger = commit_of("x", 2, (ORDERS, 0), api_version=8)
    assert judge_commit(group, stranger) is ErrorCode.UNKNOWN_MEMBER_ID


def test_row_36_a_commit_by_nobody_is_good_while_the_group_is_empty() -> None:
    group = fed(stable("a"), beat_of("a", -1))
    assert judge_commit(group, commit_of("", -1, (ORDERS, 0), api_version=2)) is ErrorCode.NONE
    stranger = commit_of("a", 2, (ORDERS, 0))
    assert judge_commit(group, stranger) is ErrorCode.UNKNOWN_MEMBER_ID


def test_kip_1251_an_older_epoch_is_good_for_what_the_member_has_had_since() -> None:
    group = fed(stable("a"), join_of("b"))
    group = fed(group, beat_of("a", 2, names=("clicks", "orders")))
    group = fed(group, shared(4, {"a": {ORDERS: (0, 1, 2, 3), CLICKS: (0,)}}), beat_of("a", 2))
    assert group.members["a"].epoch == 4
    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert judge_commit(group, commit_of("a", 2, (ORDERS, 0))) is ErrorCode.NONE
    assert judge_commit(group, commit_of("a", 3, (ORDERS, 0))) is ErrorCode.NONE
    assert judge_commit(group, commit_of("a", 1, (ORDERS, 0))) is stale
    assert judge_commit(group, commit_of("a", 2, (CLICKS, 0))) is stale
    assert judge_commit(group, commit_of("a", 2, (ORDERS, 0), (CLICKS, 0))) is stale
    assert judge_commit(group, commit_of("a", 4, (CLICKS, 0))) is ErrorCode.NONE


def test_kip_1251_what_is_still_to_be_revoked_may_be_committed_and_then_no_more() -> None:
    group = fed(revoking(), join_of("c"))
    group = fed(group, shared(4, {"a": {ORDERS: (0, 1)}}))
    assert judge_commit(group, commit_of("a", 2, (ORDERS, 3))) is ErrorCode.NONE
    group = fed(group, beat_of("a", 2, owned=HALF))
    assert judge_commit(group, commit_of("a", 2, (ORDERS, 0))) is ErrorCode.NONE
    refusal = judge_commit(group, commit_of("a", 2, (ORDERS, 3)))
    assert refusal is ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("a", 2, ErrorCode.NONE),
        ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 3, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_row_38_an_offset_fetch_names_nobody_or_a_member_with_its_epoch(
    member_id: str | None, epoch: int, code: ErrorCode
) -> None:
    assert judge_fetch(stable("a"), member_id=member_id, epoch=epoch) is code


def test_p5_a_member_that_comes_or_goes_costs_one_rebalance() -> None:
    group = stable("a", "b")
    epoch = group.epoch
    group = retargeted(fed(group, join_of("c")), {"orders": (ORDERS, 4)})
    for member in ("a", "b", "c") * 3:
        known = group.members[member]
        owned = tuple((topic, tuple(sorted(here))) for topic, here in known.assigned.items())
        group = answered(group, member, known.epoch, owned=owned)[0]
    assert (state_name(group), group.epoch) == ("Stable", epoch + 1)


def test_a_refused_event_is_judged_without_a_change() -> None:
    group = ConsumerGroup("group")
    for event in (
        Expire("group", "a", 1),
        Adopt("group", "a", 1),
        TimerExpired("group", TimerKind.REVOKE, "a", 1),
        Resolved("group", "x", ()),
        shared(1, {}),
        beat_of("a", 2),
        beat_of("a", -1),
    ):
        after, outcome = step(group, event)
        assert after is group
        assert getattr(outcome, "code", None) is not ErrorCode.NONE
