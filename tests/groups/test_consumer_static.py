"""Static members of consumer groups (row 93): an instance id is one member's at a time."""

from tests.groups.consumer_build import (
    ORDERS,
    answered,
    beat_of,
    commit_of,
    fed,
    feed,
    join_of,
    pairs,
    refused,
    retargeted,
    shared,
)

from lakelog.groups.consumer import judge_commit, state_name, target_event
from lakelog.groups.events import ConsumerHeartbeatResult, Expire
from lakelog.groups.state import ConsumerGroup, MemberState
from lakelog.model.errors import ErrorCode

ALL = ((ORDERS, (0, 1, 2, 3)),)
TOPICS = {"orders": (ORDERS, 4)}


def static() -> ConsumerGroup:
    group = fed(ConsumerGroup("group"), join_of("a", instance_id="one"))
    return fed(retargeted(group, TOPICS), beat_of("a", 1, instance_id="one"))


def away() -> ConsumerGroup:
    return fed(static(), beat_of("a", -2, instance_id="one"))


def test_row_93_an_instance_id_in_use_is_not_released() -> None:
    code = refused(static(), join_of("b", instance_id="one"))
    assert code is ErrorCode.UNRELEASED_INSTANCE_ID


def test_row_93_a_live_static_member_may_join_again_under_its_own_id() -> None:
    group = static()
    after, answer = feed(group, join_of("a", instance_id="one"))
    assert after.epoch == group.epoch
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "a", 2, ALL)


def test_row_93_who_leaves_for_a_while_keeps_its_partitions_without_a_rebalance() -> None:
    group, answer = feed(static(), beat_of("a", -2, instance_id="one"))
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "a", -2, None)
    assert group.epoch == 2
    member = group.members["a"]
    assert (member.is_away, member.epoch) == (True, -2)
    assert member.assigned == {ORDERS: {0: 0, 1: 0, 2: 0, 3: 0}}
    assert feed(group, beat_of("a", -2, instance_id="one"))[0] is group
    assert state_name(group) == "Reconciling"


def test_row_93_the_successor_takes_over_target_and_partitions_without_a_rebalance() -> None:
    group, answer = feed(away(), join_of("b", instance_id="one"))
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "b", 2, ALL)
    assert (group.epoch, list(group.members), list(group.target)) == (2, ["b"], ["b"])
    assert set(group.owners[ORDERS].values()) == {"b"}
    assert not group.members["b"].is_away
    assert state_name(group) == "Stable"


def test_row_93_the_successor_of_a_full_group_is_let_in() -> None:
    group, answer = feed(away(), join_of("b", instance_id="one", members_max=1))
    assert isinstance(answer, ConsumerHeartbeatResult)
    assert answer.code is ErrorCode.NONE
    assert list(group.members) == ["b"]


def test_row_93_a_successor_that_reads_other_topics_is_a_rebalance() -> None:
    group, answer = feed(away(), join_of("b", instance_id="one", names=("clicks",)))
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "b", 2, ())
    assert (group.epoch, group.owners) == (3, {})


def test_row_93_a_member_that_is_away_may_come_back_under_its_own_id() -> None:
    group, answer = feed(away(), join_of("a", instance_id="one"))
    assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "a", 2, ALL)
    assert (group.epoch, group.members["a"].is_away) == (2, False)


def test_row_93_a_member_that_is_away_is_fenced_if_it_just_goes_on() -> None:
    code = refused(away(), beat_of("a", 2, instance_id="one", owned=()))
    assert code is ErrorCode.FENCED_MEMBER_EPOCH


def test_row_93_the_old_id_is_fenced_with_the_instance_id_and_unknown_without() -> None:
    group = fed(away(), join_of("b", instance_id="one"))
    for epoch in (2, -1, -2):
        fenced = refused(group, beat_of("a", epoch, instance_id="one"))
        assert fenced is ErrorCode.FENCED_INSTANCE_ID
        assert refused(group, beat_of("a", epoch)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_row_93_leaving_for_good_removes_a_static_member() -> None:
    for group in (static(), away()):
        after, answer = feed(group, beat_of("a", -1, instance_id="one"))
        assert answer == ConsumerHeartbeatResult(ErrorCode.NONE, None, "a", -1, None)
        assert (after.epoch, after.members, after.owners) == (3, {}, {})


def test_row_93_who_does_not_come_back_within_its_session_is_removed() -> None:
    group = away()
    after = fed(group, Expire("group", "a", group.members["a"].holder_epoch))
    assert (after.epoch, after.members) == (3, {})


def test_an_instance_id_is_not_taken_over_by_another_member() -> None:
    group = fed(away(), join_of("b"))
    code = refused(group, join_of("b", instance_id="one"))
    assert code is ErrorCode.UNRELEASED_INSTANCE_ID


def test_what_was_to_be_revoked_is_free_once_its_member_is_away() -> None:
    group = fed(static(), join_of("b"))
    group = fed(group, shared(3, {"a": {ORDERS: (0, 1)}, "b": {ORDERS: (2, 3)}}))
    group = fed(group, beat_of("a", 2, instance_id="one"))
    assert group.members["a"].state is MemberState.UNREVOKED
    group = fed(group, beat_of("a", -2, instance_id="one"))
    assert pairs(group.members["a"].assigned) == {(ORDERS, 0), (ORDERS, 1)}
    assert answered(group, "b", 2)[1].assignment == ((ORDERS, (2, 3)),)


def test_what_a_member_that_is_away_has_is_given_to_nobody_until_its_successor_comes() -> None:
    group = fed(away(), join_of("b"))
    group = fed(group, shared(3, {"a": {ORDERS: (0, 1)}, "b": {ORDERS: (2, 3)}}))
    group, answer = answered(group, "b", 2)
    assert (answer.epoch, answer.assignment) == (3, None)
    assert group.members["b"].state is MemberState.UNRELEASED
    group, heard = feed(group, join_of("c", instance_id="one"))
    assert heard == ConsumerHeartbeatResult(ErrorCode.NONE, None, "c", 3, ((ORDERS, (0, 1)),))
    assert answered(group, "b", 3)[1].assignment == ((ORDERS, (2, 3)),)


def test_a_target_counts_members_that_are_away_and_keeps_a_successors_share() -> None:
    group = fed(static(), join_of("b", instance_id="two"))
    group = retargeted(group, TOPICS)
    share = group.target["a"]
    group = fed(group, beat_of("a", -2, instance_id="one"))
    group = fed(group, join_of("c", instance_id="one"), join_of("d", names=("clicks",)))
    event = target_event(group, topics=TOPICS, assignor_default="uniform")
    assert fed(group, event).target["c"] == share


def test_a_successor_may_commit_from_its_first_epoch_on() -> None:
    group = fed(away(), join_of("b", instance_id="one"), join_of("c"))
    group = fed(group, shared(3, {"b": {ORDERS: (0, 1, 2, 3)}}))
    group = fed(group, beat_of("b", 2, instance_id="one"))
    assert group.members["b"].epoch == 3
    assert judge_commit(group, commit_of("b", 2, (ORDERS, 0))) is ErrorCode.NONE
