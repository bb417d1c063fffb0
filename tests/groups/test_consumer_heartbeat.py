"""Heartbeats of consumer groups: who may come, which epochs are believed, what is answered."""

import pytest
from tests.groups.consumer_build import (
    ORDERS,
    Fields,
    answered,
    beat_of,
    fed,
    feed,
    join_of,
    pairs,
    refused,
    retargeted,
    shared,
    stable,
)

from lakelog.groups.consumer import needs_target, step
from lakelog.groups.events import Adopt, ConsumerHeartbeatResult, Resolved
from lakelog.groups.state import ConsumerGroup, MemberState
from lakelog.model.errors import ErrorCode

ALL = ((ORDERS, (0, 1, 2, 3)),)


def test_row_89_a_first_join_is_answered_in_full_and_never_with_epoch_0() -> None:
    group, answer = feed(ConsumerGroup("group"), join_of("a"))
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "a", 1, ())
    assert (group.epoch, group.target_epoch) == (2, 1)
    assert needs_target(group)


def test_row_89_a_first_member_waits_for_the_first_target() -> None:
    group = fed(ConsumerGroup("group"), join_of("a"))
    waiting, answer = answered(group, "a", 1)
    assert waiting is group
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "a", 1, None)
    group = retargeted(group, {"orders": (ORDERS, 4)})
    assert not needs_target(group)
    group, answer = answered(group, "a", 1)
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "a", 2, ALL)
    assert group.members["a"].state is MemberState.STABLE


def test_a_join_that_is_repeated_after_the_target_came_is_answered_with_its_partitions() -> None:
    group = retargeted(fed(ConsumerGroup("group"), join_of("a")), {"orders": (ORDERS, 4)})
    group, answer = feed(group, join_of("a"))
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "a", 2, ALL)
    assert group.epoch == 2


def test_members_that_come_raise_the_group_epoch_by_one_each_and_start_at_the_target() -> None:
    group = stable("a")
    epoch = group.epoch
    group, answer = feed(group, join_of("b"))
    assert isinstance(answer, ConsumerHeartbeatResult)
    assert (group.epoch, answer.epoch, answer.assignment) == (epoch + 1, epoch, ())
    assert group.members["b"].state is MemberState.STABLE
    assert fed(group, join_of("c")).epoch == epoch + 2


def test_row_92_a_greater_epoch_is_fenced() -> None:
    assert refused(stable("a"), beat_of("a", 3, owned=ALL)) is ErrorCode.FENCED_MEMBER_EPOCH


def test_row_92_an_unknown_member_is_unknown_with_and_without_an_instance_id() -> None:
    group = stable("a")
    assert refused(group, beat_of("b", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(group, beat_of("a", 2, instance_id="one")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(group, beat_of("b", -1)) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("owned", "is_believed"),
    [
        (ALL, True),
        (((ORDERS, (1, 2)),), True),
        ((), True),
        (None, False),
        (((ORDERS, (0, 1, 2, 3, 4)),), False),
        (((bytes(16), (0,)),), False),
    ],
)
def test_row_92_the_epoch_before_is_believed_only_with_a_part_of_the_assigned_partitions(
    owned: tuple[tuple[bytes, tuple[int, ...]], ...] | None, is_believed: bool
) -> None:
    group = fed(stable("a"), join_of("b"))
    group = fed(group, shared(group.epoch, {"a": {ORDERS: (0, 1, 2, 3)}}), beat_of("a", 2))
    assert (group.members["a"].epoch, group.members["a"].previous_epoch) == (3, 2)
    event = beat_of("a", 2, owned=owned)
    if is_believed:
        same, answer = feed(group, event)
        assert same is group
        assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "a", 3, None)
    else:
        assert refused(group, event) is ErrorCode.FENCED_MEMBER_EPOCH


def test_row_92_who_joined_has_no_epoch_before() -> None:
    group = retargeted(fed(ConsumerGroup("group"), join_of("a")), {"orders": (ORDERS, 4)})
    group = fed(group, join_of("a"))
    assert group.members["a"].epoch == 2
    assert refused(group, beat_of("a", 1, owned=())) is ErrorCode.FENCED_MEMBER_EPOCH


def test_row_92_an_epoch_older_than_the_one_before_is_fenced() -> None:
    group = stable("a")
    for member in ("b", "c"):
        group = fed(group, join_of(member))
        whole = shared(group.epoch, {"a": {ORDERS: (0, 1, 2, 3)}})
        group = fed(group, whole, beat_of("a", group.members["a"].epoch))
    assert group.members["a"].epoch == 4
    assert refused(group, beat_of("a", 2, owned=())) is ErrorCode.FENCED_MEMBER_EPOCH


def test_row_38_a_known_member_joins_again_with_epoch_0_and_without_a_rebalance() -> None:
    group = stable("a", "b")
    after, answer = feed(group, join_of("a"))
    assert (after.epoch, after.target_epoch) == (group.epoch, group.target_epoch)
    assert isinstance(answer, ConsumerHeartbeatResult)
    assert answer.epoch == group.members["a"].epoch
    assert answer.assignment is not None
    assert len(answer.assignment[0][1]) == 2


def test_row_38_joining_again_with_other_topics_is_a_rebalance() -> None:
    group = stable("a", "b")
    after = fed(group, join_of("a", names=("clicks", "orders")))
    assert after.epoch == group.epoch + 1
    assert after.members["a"].names == ("clicks", "orders")


def test_joining_again_lets_go_of_what_was_to_be_revoked() -> None:
    group = fed(stable("a"), join_of("b"))
    group = fed(group, shared(3, {"a": {ORDERS: (0, 1)}, "b": {ORDERS: (2, 3)}}))
    group = fed(group, beat_of("a", 2))
    assert group.members["a"].state is MemberState.UNREVOKED
    group, answer = feed(group, join_of("a"))
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "a", 3, ((ORDERS, (0, 1)),))
    group, answer = answered(group, "b", 2)
    assert answer.assignment == ((ORDERS, (2, 3)),)


def test_row_32_a_full_group_takes_nobody_else_but_keeps_its_members() -> None:
    group = stable("a", "b")
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused(group, join_of("c", members_max=2)) is full
    after, answer = feed(group, join_of("a", members_max=2))
    assert after.members.keys() == group.members.keys()
    assert isinstance(answer, ConsumerHeartbeatResult)
    assert answer.code is ErrorCode.NONE
    assert refused(group, beat_of("c", 2, members_max=2)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_row_38_an_epoch_below_minus_2_is_invalid() -> None:
    assert refused(stable("a"), beat_of("a", -3)) is ErrorCode.INVALID_REQUEST


def test_row_89_what_a_heartbeat_does_not_tell_stays() -> None:
    told = join_of("a", rack_id="rack", assignor="range", names=("orders",), pattern="o.*")
    group = fed(ConsumerGroup("group"), told)
    member = group.members["a"]
    group, _ = answered(group, "a", 2)
    assert group.members["a"] is member
    assert (member.rack_id, member.assignor) == ("rack", "range")
    assert (member.names, member.pattern) == (("orders",), "o.*")
    assert member.rebalance_timeout_ms == 60_000


def test_row_89_an_empty_pattern_removes_the_pattern_and_what_it_matched() -> None:
    group = fed(
        ConsumerGroup("group"),
        join_of("a", pattern="o.*"),
        join_of("b", pattern="o.*"),
        Resolved("group", "o.*", ("orders",)),
    )
    group = fed(group, beat_of("a", 1, pattern=""))
    assert (group.epoch, group.members["a"].pattern) == (3, "")
    assert group.resolved == {"o.*": ("orders",)}
    group = fed(group, beat_of("b", 1, pattern=""))
    assert group.resolved == {}


@pytest.mark.parametrize(
    ("told", "is_rebalance"),
    [
        ({"names": ("orders", "clicks")}, True),
        ({"names": ()}, True),
        ({"pattern": "x"}, False),
        ({"names": ("orders", "orders")}, False),
        ({"assignor": "range"}, False),
        ({"rack_id": "rack"}, False),
        ({"rebalance_timeout_ms": 5}, False),
        ({"client_host": "/::1"}, False),
        ({"session_timeout_ms": 1}, False),
        ({"holder": 2, "holder_epoch": 4}, False),
    ],
)
def test_only_another_subscription_is_a_rebalance(told: Fields, is_rebalance: bool) -> None:
    group = stable("a")
    after, answer = answered(group, "a", 2, **told)
    assert answer.code is ErrorCode.NONE
    assert after.epoch == group.epoch + is_rebalance
    is_repeat = told.get("names") == ("orders", "orders")
    assert (after is group) == is_repeat


def test_k7_a_first_pattern_is_a_rebalance_once_it_is_resolved() -> None:
    group, answer = feed(ConsumerGroup("group"), join_of("a", pattern="o.*"))
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "a", 1, ())
    assert (group.epoch, needs_target(group)) == (1, False)
    group = fed(group, Resolved("group", "o.*", ("orders",)))
    assert (group.epoch, needs_target(group)) == (2, True)
    assert fed(group, join_of("b", pattern="o.*")).epoch == 3, "what it matches is known"


def test_another_pattern_or_none_is_a_rebalance_at_once() -> None:
    group = fed(ConsumerGroup("group"), join_of("a", pattern="o.*"))
    assert fed(group, beat_of("a", 1, pattern="x")).epoch == 2
    assert fed(group, beat_of("a", 1, pattern="")).epoch == 2


def test_a_member_that_reads_nothing_comes_without_a_rebalance_and_goes_with_one() -> None:
    group = stable("a")
    came, answer = feed(group, join_of("b", names=()))
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "b", 2, ())
    assert came.epoch == group.epoch
    assert fed(came, beat_of("b", -1)).epoch == group.epoch + 1


def test_the_order_of_names_says_nothing() -> None:
    group = fed(ConsumerGroup("group"), join_of("a", names=("orders", "clicks")))
    same, _ = answered(group, "a", 2, names=("clicks", "orders"))
    assert same is group


def test_a_steady_heartbeat_changes_nothing() -> None:
    group = stable("a", "b")
    epoch = group.members["a"].epoch
    same, answer = answered(group, "a", epoch)
    assert same is group
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "a", epoch, None)


@pytest.mark.parametrize("names", [("orders",), None])
def test_row_90_a_full_request_is_answered_with_the_assignment(
    names: tuple[str, ...] | None,
) -> None:
    group = stable("a")
    pattern = None if names else ""
    full = beat_of("a", 2, rebalance_timeout_ms=60_000, names=names, pattern=pattern, owned=ALL)
    same, answer = feed(group, full)
    assert same is group
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "a", 2, ALL)


@pytest.mark.parametrize(
    "told",
    [
        {"rebalance_timeout_ms": 60_000, "names": ("orders",)},
        {"rebalance_timeout_ms": 60_000, "owned": ALL},
        {"names": ("orders",), "owned": ALL},
        {"owned": ()},
    ],
)
def test_row_90_less_than_a_full_request_is_not_answered_with_the_assignment(
    told: Fields,
) -> None:
    same, answer = answered(stable("a"), "a", 2, **told)
    assert answer.assignment is None
    assert same == stable("a")


def test_row_90_a_leave_is_answered_with_its_own_epoch_and_is_a_rebalance() -> None:
    group = stable("a", "b")
    after, answer = feed(group, beat_of("a", -1))
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "a", -1, None)
    assert after.epoch == group.epoch + 1
    assert list(after.members) == ["b"]
    assert list(after.target) == ["b"]


def test_leaving_for_a_while_without_an_instance_id_is_leaving() -> None:
    group, answer = feed(stable("a", "b"), beat_of("a", -2))
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "a", -2, None)
    assert list(group.members) == ["b"]


def test_row_81_an_emptied_group_keeps_its_epoch_for_whoever_comes_next() -> None:
    group = fed(stable("a"), beat_of("a", -1))
    assert (group.epoch, group.target_epoch, group.owners, group.target) == (3, 3, {}, {})
    assert not needs_target(group)
    group, answer = feed(group, join_of("b"))
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "b", 3, ())
    assert (group.epoch, group.target_epoch) == (4, 3)
    assert needs_target(group)


def test_k4_a_heartbeat_that_arrives_elsewhere_moves_the_member_there_once() -> None:
    group = stable("a")
    first = group.members["a"].holder_epoch
    moved, _ = answered(group, "a", 2, holder=2, holder_epoch=first)
    assert (moved.members["a"].holder, moved.members["a"].holder_epoch) == (2, first + 1)
    assert moved.epoch == group.epoch
    assert answered(moved, "a", 2, holder=2)[0] is moved


def test_k4_a_heartbeat_that_is_refused_moves_nothing() -> None:
    group = stable("a")
    late = beat_of("a", 6, holder=2, holder_epoch=group.members["a"].holder_epoch)
    assert refused(group, late) is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("epoch", [0, 2, -1])
def test_k4_a_heartbeat_that_waited_while_its_client_went_elsewhere_changes_nothing(
    epoch: int,
) -> None:
    group = fed(stable("a"), Adopt("group", "a", 2))
    late = join_of("a") if epoch == 0 else beat_of("a", epoch, owned=())
    assert refused(group, late) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_k4_every_word_of_a_member_makes_what_waits_elsewhere_old() -> None:
    group = stable("a")
    seen = group.members["a"].holder_epoch
    for said in (join_of("a"), beat_of("a", 2, names=("clicks", "orders")), beat_of("a", -2)):
        after = fed(group, said)
        late = beat_of("a", 2, owned=(), holder=2, holder_epoch=seen)
        if "a" in after.members:
            assert refused(after, late) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    steady, _ = answered(group, "a", 2)
    assert steady is group  # K8: and silence is none


def test_k4_a_join_that_lands_late_does_not_let_go_of_partitions() -> None:
    group = fed(stable("a"), Adopt("group", "a", 2), join_of("b", holder=2))
    group = fed(group, shared(group.epoch, {"a": {ORDERS: (0,)}, "b": {ORDERS: (1,)}}))
    held = beat_of("a", 2, owned=((ORDERS, (0, 1)),), holder=2)
    group = fed(group, held)
    assert group.members["a"].revoking
    assert refused(group, join_of("a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.owners[ORDERS][1] == "a"  # P1: it is still letting go


def test_a_member_that_comes_back_under_its_id_is_not_hit_by_what_was_said_of_it_before() -> None:
    group = stable("a", "b")
    before = group.members["a"].holder_epoch
    group = fed(group, beat_of("a", -1), join_of("a"))
    assert group.members["a"].holder_epoch > before


def test_dry_run_and_apply_say_the_same() -> None:
    group = fed(ConsumerGroup("group"), join_of("a"))
    event = join_of("b")
    assert step(group, event) == step(group, event)


def test_what_a_member_stops_reading_is_taken_from_it_at_once_and_not_given_back() -> None:
    group = fed(ConsumerGroup("group"), join_of("a", names=("clicks", "orders")))
    group = fed(group, shared(2, {"a": {ORDERS: (0, 1)}}), beat_of("a", 1))
    group, answer = answered(group, "a", 2, names=("clicks",))
    assert (answer.epoch, answer.assignment) == (2, ())
    assert pairs(group.members["a"].revoking) == {(ORDERS, 0), (ORDERS, 1)}
    group, answer = answered(group, "a", 2, owned=())
    assert (answer.epoch, answer.assignment) == (2, None)
    assert group.owners == {}
    assert answered(group, "a", 2)[0] is group


def test_a_pattern_that_is_not_resolved_yet_takes_nothing_away() -> None:
    group, answer = answered(stable("a"), "a", 2, names=(), pattern="o.*")
    assert answer.assignment is None
    assert len(group.owners[ORDERS]) == 4
