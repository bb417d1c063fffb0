"""One member by values: refusals, losses, announcements, and leaving."""

from dataclasses import replace

import pytest
from tests.discovery.one_member import (
    A0,
    A1,
    B0,
    CONFIG,
    OUTSIDE,
    assignment,
    joined,
    joins,
    run,
    settled,
    told,
)

from lakelog.discovery.failures import (
    ConfigError,
    DiscoveryError,
    Fenced,
    GroupRefused,
    PollTimeoutExceeded,
    SecurityError,
)
from lakelog.discovery.member import Phase
from lakelog.discovery.membership import step
from lakelog.discovery.membership_events import (
    Announce,
    CallbackOverdue,
    CallbackReturned,
    CoordinatorLost,
    Fail,
    ForgetCoordinator,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    PartitionsLost,
    PartitionsRevoked,
    Publish,
    Reported,
    RevocationDone,
    SendLeave,
    SessionExpired,
    StartRequested,
    StateChanged,
    StopRequested,
    SyncAnswered,
)
from lakelog.discovery.node import NodeMetadata, NodeState
from lakelog.model.errors import ErrorCode
from lakelog.wire.codec import (
    decode_subscription,
)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_member_that_is_no_longer_known_loses_all_and_joins_again(code: ErrorCode) -> None:
    member, effects = run(settled(A0, B0), HeartbeatAnswered(code))
    assert told(effects) == [PartitionsLost((A0, B0)), StateChanged(NodeState.JOINING)]
    kept_id = "" if code is ErrorCode.UNKNOWN_MEMBER_ID else "n1-1"
    assert [(join.member_id, join.attempt) for join in joins(effects)] == [(kept_id, 0)]
    assert (member.held, member.generation) == ((), -1)
    _, effects = run(member, JoinAnswered(code))
    assert [join.attempt for join in joins(effects)] == [1]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.FENCED_INSTANCE_ID, Fenced),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, SecurityError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, SecurityError),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, GroupRefused),
        (ErrorCode.INVALID_SESSION_TIMEOUT, GroupRefused),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupRefused),
    ],
)
def test_what_cannot_heal_ends_the_membership(code: ErrorCode, kind: type[DiscoveryError]) -> None:
    for before, event in (
        (run(OUTSIDE, StartRequested())[0], JoinAnswered(code)),
        (run(OUTSIDE, StartRequested(), joined())[0], SyncAnswered(code)),
        (settled(A0), HeartbeatAnswered(code)),
    ):
        member, effects = run(before, event)
        assert member.phase is Phase.GONE
        assert isinstance(effects[-1], Fail)
        assert type(effects[-1].failure) is kind
        assert effects[-1].failure.is_fatal
        assert StateChanged(NodeState.LEFT) in told(effects)
        assert (PartitionsLost((A0,)) in told(effects)) == (before.held == (A0,))
        assert step(member, StartRequested()) == (member, ())


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_SERVER_ERROR, 9999]
)
def test_what_heals_is_tried_again_later_and_later(code: int) -> None:
    member, attempts = run(OUTSIDE, StartRequested())[0], []
    for _ in range(3):
        member, effects = run(member, JoinAnswered(code))
        attempts += [join.attempt for join in joins(effects)]
    assert attempts == [1, 2, 3]
    assert member.trouble
    member, _ = run(member, joined(), SyncAnswered(0, assignment(A0)))
    assert (member.attempts, member.trouble) == (0, "")


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_another_coordinator_is_looked_for(code: ErrorCode) -> None:
    member, effects = run(OUTSIDE, StartRequested(), JoinAnswered(code))
    assert effects[0] == ForgetCoordinator()
    assert [join.attempt for join in joins(effects)] == [1]
    member, effects = run(settled(A0), HeartbeatAnswered(code))
    assert effects == (ForgetCoordinator(), Publish(StateChanged(NodeState.SUSPECTED)))
    assert member.held == (A0,)


def test_a_lost_coordinator_makes_a_member_suspected_until_a_heartbeat_is_answered() -> None:
    member, effects = run(settled(A0), CoordinatorLost("gone"))
    assert effects == (ForgetCoordinator(), Publish(StateChanged(NodeState.SUSPECTED)))
    assert member.trouble == "gone"
    assert step(member, CoordinatorLost("gone"))[1] == (ForgetCoordinator(),)
    member, effects = run(member, HeartbeatAnswered(0))
    assert told(effects) == [StateChanged(NodeState.ACTIVE)]
    assert (member.held, member.trouble) == ((A0,), "")


def test_an_expired_session_loses_all_before_others_have_it() -> None:
    member, effects = run(settled(A0), SessionExpired())
    assert told(effects) == [PartitionsLost((A0,)), StateChanged(NodeState.JOINING)]
    assert ForgetCoordinator() in effects
    assert len(joins(effects)) == 1
    assert decode_subscription(joins(effects)[0].metadata).owned_partitions == ()
    rejoining = run(settled(A0), HeartbeatAnswered(ErrorCode.REBALANCE_IN_PROGRESS))[0]
    member, effects = run(rejoining, SessionExpired())
    assert told(effects) == [PartitionsLost((A0,)), StateChanged(NodeState.JOINING)]
    assert joins(effects) == []
    # Its JoinGroup claimed what is lost, so whoever waits for it needs another one.
    _, effects = run(member, joined(6), SyncAnswered(0, assignment(A1, is_awaited=True)))
    assert len(joins(effects)) == 1


def test_an_announcement_starts_a_rebalance_unless_it_says_nothing_new() -> None:
    start = settled(A0)
    member, effects = run(start, Announce(NodeMetadata(cores=8)))
    assert decode_subscription(joins(effects)[0].metadata).user_data == member.user_data
    assert member.node.metadata.cores == 8
    assert member.held == (A0,)
    assert step(start, Announce(CONFIG.metadata)) == (start, ())
    owning = replace(CONFIG.metadata, owned_partitions=(7,))
    assert step(start, Announce(owning)) == (start, ())
    with pytest.raises(ConfigError, match=r"metadata\.cores"):
        step(start, Announce(NodeMetadata(cores=0)))


def test_a_plan_from_before_an_announcement_is_asked_for_again_once() -> None:
    late = run(OUTSIDE, StartRequested(), Announce(NodeMetadata(cores=8)))[0]
    member, effects = run(late, joined(), SyncAnswered(0, assignment(A0)))
    assert len(joins(effects)) == 1
    member, effects = run(member, joined(6), SyncAnswered(0, assignment(A0)))
    assert joins(effects) == []
    assert member.phase is Phase.SETTLED


def test_stopping_lets_go_of_everything_first_and_then_leaves() -> None:
    member, effects = run(settled(A0, B0), StopRequested())
    assert told(effects) == [StateChanged(NodeState.DRAINING), PartitionsRevoked((A0, B0), 0)]
    assert member.beats
    assert step(member, StopRequested()) == (member, ())
    member, effects = run(member, RevocationDone(0))
    assert effects == (SendLeave("n1-1"),)
    member, effects = run(member, LeaveAnswered())
    assert told(effects) == [StateChanged(NodeState.LEFT)]
    assert member.phase is Phase.GONE


def test_stopping_with_nothing_to_let_go_leaves_at_once() -> None:
    assert run(settled(), StopRequested())[1][-1] == SendLeave("n1-1")
    assert run(OUTSIDE, StartRequested(), StopRequested())[1][-1] == SendLeave("")
    member, effects = run(OUTSIDE, StopRequested())
    assert (member.phase, told(effects)) == (Phase.GONE, [StateChanged(NodeState.LEFT)])


def test_a_callback_that_does_not_return_makes_the_node_leave_until_it_does() -> None:
    member, effects = run(settled(A0), CallbackOverdue())
    first, *_ = told(effects)
    assert isinstance(first, Reported)
    assert isinstance(first.failure, PollTimeoutExceeded)
    assert not first.failure.is_fatal
    assert PartitionsLost((A0,)) in told(effects)
    assert effects[-1] == SendLeave("n1-1")
    assert not member.beats
    assert step(member, LeaveAnswered()) == (member, ())
    member, effects = run(member, CallbackReturned())
    assert [join.member_id for join in joins(effects)] == [""]
    member, effects = run(settled(A0), CallbackOverdue(), StopRequested())
    assert member.phase is Phase.GONE


def test_a_callback_that_does_not_return_does_not_keep_a_node_from_leaving() -> None:
    member, effects = run(settled(A0), StopRequested(), CallbackOverdue())
    assert effects == (SendLeave("n1-1"),)
    assert step(member, RevocationDone(0))[1] == (SendLeave("n1-1"),)
