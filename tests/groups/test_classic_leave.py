"""Members of classic groups leave, fall silent, or move to another broker."""

from tests.groups.classic_build import (
    again,
    code_of,
    feed,
    fire,
    join_of,
    joined,
    leave_of,
    refuse,
    stable,
)

from lakelog.groups.classic import answer_join, step
from lakelog.groups.events import Adopt, Expire, LeaveResult
from lakelog.groups.state import ClassicGroup, ClassicState
from lakelog.model.errors import ErrorCode

NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID
PREPARING, COMPLETING = ClassicState.PREPARING, ClassicState.COMPLETING


def test_row_86_each_member_of_a_leave_has_its_own_code() -> None:
    group = stable(join_of("a"), join_of("b", instance="one"), join_of("c", instance="two"))
    asked = leave_of(
        ("a", None),  # dynamic
        ("", "one"),  # static, by an administrator
        ("ghost", None),
        ("", "three"),
        ("", None),
        ("other", "two"),
        ("c", "three"),
    )
    after, outcome = step(group, asked)
    codes = (NONE, NONE, UNKNOWN, UNKNOWN, UNKNOWN, FENCED, UNKNOWN)
    assert outcome == LeaveResult(codes, ("a", "b", "ghost", "", "", "other", "c"))
    assert (after.state, list(after.members), after.leader) == (PREPARING, ["c"], "c")
    assert after.instances == {"two": "c"}


def test_row_86_a_static_member_leaves_by_its_id_with_or_without_its_instance() -> None:
    group = stable(join_of("a"), join_of("b", instance="one"))
    for named in (("b", "one"), ("b", None), ("", "one")):
        after, outcome = step(group, leave_of(named))
        assert outcome == LeaveResult((NONE,), ("b",))
        assert list(after.members) == ["a"]


def test_row_86_who_is_named_twice_in_one_leave_is_gone_the_second_time() -> None:
    group = stable(join_of("a"), join_of("b", instance="one"))
    asked = leave_of(("b", "one"), ("b", None), ("", "one"), ("other", "one"))
    _, outcome = step(group, asked)
    assert isinstance(outcome, LeaveResult)
    assert outcome.codes == (NONE, UNKNOWN, UNKNOWN, UNKNOWN)


def test_row_86_a_leave_that_nobody_may_make_changes_nothing() -> None:
    for group in (stable(join_of("a")), ClassicGroup("group")):
        after, outcome = step(group, leave_of(("ghost", None), ("", "one")))
        assert after is group
        assert outcome == LeaveResult((UNKNOWN, UNKNOWN), ("ghost", ""))
        assert step(group, leave_of())[0] is group


def test_a_member_that_goes_rebalances_stable_and_completing_groups() -> None:
    for group in (stable(join_of("a"), join_of("b")), joined(join_of("a"), join_of("b"))):
        after = feed(group, leave_of(("b", None)))
        assert (after.state, after.generation) == (PREPARING, 2)
        after = feed(after, again("a"))
        assert (after.state, after.generation) == (COMPLETING, 3)


def test_the_last_one_that_was_waited_for_completes_the_rebalance_by_going() -> None:
    group = feed(stable(join_of("a"), join_of("b")), again("a"))
    assert group.state is PREPARING
    for event in (leave_of(("b", None)), Expire("group", "b", 0)):
        after = feed(group, event)
        assert (after.state, list(after.members)) == (COMPLETING, ["a"])


def test_during_the_initial_delay_a_leave_completes_nothing_while_somebody_is_there() -> None:
    group = feed(ClassicGroup("group"), join_of("a", delay_ms=3_000), join_of("b"))
    group = feed(group, leave_of(("a", None)))
    assert (group.state, list(group.members), group.leader) == (PREPARING, ["b"], "b")
    assert fire(group).state is PREPARING  # Somebody came since the delay began.
    group = feed(group, leave_of(("b", None)))
    assert (group.state, group.generation) == (ClassicState.EMPTY, 1)


def test_the_parked_join_of_a_member_that_went_is_answered() -> None:
    group = feed(stable(join_of("a")), join_of("b"))
    assert answer_join(group, "b") is None
    answer = answer_join(feed(group, leave_of(("b", None))), "b")
    assert answer is not None
    assert answer.code is UNKNOWN


def test_only_the_present_holder_expires_a_member() -> None:
    group = feed(stable(join_of("a"), join_of("b")), Adopt("group", "b", 2))
    assert refuse(group, Expire("group", "b", 0)) is ErrorCode.ILLEGAL_GENERATION
    assert refuse(group, Expire("group", "ghost", 0)) is UNKNOWN
    after = feed(group, Expire("group", "b", 1))
    assert (after.state, list(after.members)) == (PREPARING, ["a"])


def test_an_adoption_moves_the_member_once() -> None:
    group = stable(join_of("a"))
    moved = feed(group, Adopt("group", "a", 2))
    assert (moved.members["a"].holder, moved.members["a"].holder_epoch) == (2, 1)
    assert (moved.state, moved.generation) == (group.state, group.generation)
    after, outcome = step(moved, Adopt("group", "a", 2))
    assert after is moved
    assert code_of(outcome) is NONE
    assert refuse(moved, Adopt("group", "ghost", 2)) is UNKNOWN
