"""One member by values: joining, leading, being given and letting go, who the others are."""

from dataclasses import replace

from tests.discovery.one_member import (
    A0,
    A1,
    A2,
    B0,
    CONFIG,
    OUTSIDE,
    assignment,
    joined,
    joins,
    raw,
    run,
    settled,
    told,
)

from lakelog.discovery.assignor import by_topic
from lakelog.discovery.member import DESCRIBES_MAX, Phase, make_member
from lakelog.discovery.membership import step
from lakelog.discovery.membership_events import (
    CallbackReturned,
    CoordinatorLost,
    CountsRead,
    DescribeAnswered,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    MembersChanged,
    PartitionsAssigned,
    PartitionsRevoked,
    ReadCounts,
    RevocationDone,
    SendDescribe,
    SendSync,
    StartRequested,
    StateChanged,
    SyncAnswered,
)
from lakelog.discovery.node import NodeMetadata, NodeState, PartitionCountChanged
from lakelog.discovery.roster import RawMember
from lakelog.model.errors import ErrorCode
from lakelog.wire.codec import (
    decode_subscription,
)


def test_rebalance_assigned() -> None:
    member, effects = run(OUTSIDE, StartRequested(), joined(), SyncAnswered(0, assignment(A1, B0)))
    assert told(effects) == [PartitionsAssigned((A1, B0), 5), StateChanged(NodeState.ACTIVE)]
    assert effects[-1] == SendDescribe()
    assert member.held == (A1, B0)
    assert member.assigned_partitions == (1, 3)
    assert (member.generation, member.leader, member.state) == (5, "n9", NodeState.ACTIVE)


def test_rebalance_revoked() -> None:
    start = settled(A0, A1, B0)
    beat = HeartbeatAnswered(ErrorCode.REBALANCE_IN_PROGRESS)
    member, effects = run(
        start, beat, joined(6), SyncAnswered(0, assignment(A0, A2, is_awaited=True))
    )
    revoked = PartitionsRevoked((A1, B0), 0)
    assert told(effects) == [revoked, PartitionsAssigned((A2,), 6)]
    assert member.held == (A0, A2)
    assert member.assigned_partitions == (0, 2)
    assert member.claims == (A0, A1, A2, B0)
    member, effects = run(member, RevocationDone(0))
    assert member.claims == (A0, A2)
    assert member.phase is Phase.JOINING
    assert decode_subscription(joins(effects)[0].metadata).owned_partitions == by_topic([A0, A2])


def test_a_member_joins_with_its_node_and_what_it_holds() -> None:
    _, effects = run(OUTSIDE, StartRequested())
    first = decode_subscription(joins(effects)[0].metadata)
    assert (first.topics, first.user_data) == (("a", "b"), OUTSIDE.user_data)
    assert (first.owned_partitions, first.generation_id) == ((), -1)
    _, effects = run(settled(A0), HeartbeatAnswered(ErrorCode.REBALANCE_IN_PROGRESS))
    later = decode_subscription(joins(effects)[0].metadata)
    assert (later.owned_partitions, later.generation_id) == (by_topic([A0]), 5)
    assert joins(effects)[0].member_id == "n1-1"


def test_a_member_id_that_is_required_is_used_at_once() -> None:
    _, effects = run(OUTSIDE, StartRequested(), JoinAnswered(ErrorCode.MEMBER_ID_REQUIRED, "given"))
    assert [(join.member_id, join.attempt) for join in joins(effects)] == [("given", 0)]


def test_a_leader_reads_the_counts_and_sends_everyone_an_assignment() -> None:
    elected = JoinAnswered(0, "n1-1", 5, "n1-1", members=(raw(), RawMember("x", None, b"\xff")))
    member, effects = run(OUTSIDE, StartRequested(), elected)
    assert effects == (ReadCounts(("a", "b")),)
    member, effects = run(member, CountsRead({"a": 3, "b": 2}))
    (sync,) = effects
    assert isinstance(sync, SendSync)
    assert (sync.member_id, sync.generation) == ("n1-1", 5)
    assert [member_id for member_id, _ in sync.assignments] == ["n1-1", "x"]
    member, _ = run(member, SyncAnswered(0, sync.assignments[0][1]))
    assert member.assigned_partitions == (0, 1, 2, 3, 4)
    assert member.is_leader
    assert member.leader == "n1"


def test_a_leader_that_is_to_skip_the_assignment_sends_none() -> None:
    returned = JoinAnswered(0, "n1-2", 5, "n1-2", skip_assignment=True, members=(raw(),))
    _, effects = run(OUTSIDE, StartRequested(), returned)
    assert effects == (SendSync("n1-2", 5),)


def test_an_answer_in_the_wrong_phase_changes_nothing() -> None:
    for member in (OUTSIDE, settled(A0), run(OUTSIDE, StartRequested(), joined())[0]):
        assert step(member, joined()) == (member, ())
    waiting = run(OUTSIDE, StartRequested())[0]
    for event in (
        SyncAnswered(0, assignment(A0)),
        HeartbeatAnswered(ErrorCode.FENCED_INSTANCE_ID),
        CountsRead({"a": 1}),
        DescribeAnswered(0, "Stable", ()),
        LeaveAnswered(),
        CallbackReturned(),
        StartRequested(),
    ):
        assert step(waiting, event) == (waiting, ())


def test_a_revocation_that_ends_during_a_rebalance_is_not_forgotten() -> None:
    start = settled(A0, A1)
    rebalance = HeartbeatAnswered(ErrorCode.REBALANCE_IN_PROGRESS)
    member, _ = run(start, rebalance, joined(6), SyncAnswered(0, assignment(A0)))
    member, effects = run(member, rebalance)
    assert decode_subscription(joins(effects)[0].metadata).owned_partitions == by_topic([A0, A1])
    member, effects = run(member, RevocationDone(0))
    assert effects == ()
    member, effects = run(member, joined(7), SyncAnswered(0, assignment(A0, is_awaited=True)))
    assert decode_subscription(joins(effects)[0].metadata).owned_partitions == by_topic([A0])


def test_a_process_in_the_place_of_one_that_was_awaited_lets_the_others_go_on() -> None:
    # The one before it died while it let go of something: nobody else would ever say so.
    member, effects = run(
        OUTSIDE, StartRequested(), joined(), SyncAnswered(0, assignment(A0, is_awaited=True))
    )
    assert PartitionsAssigned((A0,), 5) in told(effects)
    assert decode_subscription(joins(effects)[0].metadata).owned_partitions == by_topic([A0])
    assert member.phase is Phase.JOINING


def test_what_nobody_waits_for_is_let_go_without_a_rebalance() -> None:
    rebalance = HeartbeatAnswered(ErrorCode.REBALANCE_IN_PROGRESS)
    member, _ = run(settled(A0, A1), rebalance, joined(6), SyncAnswered(0, assignment(A0)))
    member, effects = run(member, RevocationDone(0))
    assert (effects, member.phase) == ((), Phase.SETTLED)


def test_what_is_given_back_while_it_is_let_go_is_assigned_again() -> None:
    rebalance = HeartbeatAnswered(ErrorCode.REBALANCE_IN_PROGRESS)
    member, _ = run(settled(A0, A1), rebalance, joined(6), SyncAnswered(0, assignment(A0)))
    member, effects = run(member, rebalance, joined(7), SyncAnswered(0, assignment(A0, A1)))
    assert told(effects) == [PartitionsAssigned((A1,), 7)]
    member, effects = run(member, RevocationDone(0))
    assert effects == ()
    assert member.claims == (A0, A1)


def test_an_empty_assignment_is_told_once() -> None:
    member, effects = run(OUTSIDE, StartRequested(), joined(), SyncAnswered(0, assignment()))
    assert PartitionsAssigned((), 5) in told(effects)
    rebalance = HeartbeatAnswered(ErrorCode.REBALANCE_IN_PROGRESS)
    _, effects = run(member, rebalance, joined(6), SyncAnswered(0, assignment()))
    assert told(effects) == []


def test_bytes_that_are_no_assignment_give_nothing() -> None:
    member, _ = run(OUTSIDE, StartRequested(), joined(), SyncAnswered(0, b"\xff\xff\xff"))
    assert (member.phase, member.held, member.facts) == (Phase.SETTLED, (), None)
    member, _ = run(member, CountsRead({"a": 2, "b": 1}))
    assert member.ids.total == 3


def test_the_members_are_published_when_they_have_the_hash_and_only_if_they_changed() -> None:
    member, _ = run(OUTSIDE, StartRequested(), joined(), SyncAnswered(0, assignment(A0)))
    own = replace(raw(), assignment=assignment(A0))
    member, effects = run(member, DescribeAnswered(0, "Stable", (own,)))
    (published,) = told(effects)
    assert isinstance(published, MembersChanged)
    assert [node.node_id for node in published.nodes] == ["n1"]
    assert published.nodes[0].metadata.owned_partitions == (0,)
    assert member.is_listed
    assert member.peers == ()
    again = run(
        member,
        HeartbeatAnswered(ErrorCode.REBALANCE_IN_PROGRESS),
        joined(6),
        SyncAnswered(0, assignment(A0)),
        DescribeAnswered(0, "Stable", (own,)),
    )
    assert again[1] == ()
    assert again[0].is_listed


def test_members_with_another_hash_are_looked_at_again_and_count_in_the_end() -> None:
    other = make_member(replace(CONFIG, metadata=NodeMetadata(cores=4)))
    member, _ = run(OUTSIDE, StartRequested(), joined(), SyncAnswered(0, assignment(A0)))
    seen = DescribeAnswered(0, "Stable", (raw(other),))
    for attempt in range(1, DESCRIBES_MAX):
        member, effects = run(member, seen)
        assert effects == (SendDescribe(attempt),)
    member, effects = run(member, seen)
    (published,) = told(effects)
    assert isinstance(published, MembersChanged)
    assert published.nodes[0].metadata.cores == 4


def test_a_list_that_could_not_be_had_is_asked_for_after_a_good_heartbeat() -> None:
    member, _ = run(OUTSIDE, StartRequested(), joined(), SyncAnswered(0, assignment(A0)))
    in_vain = [DescribeAnswered(0, "PreparingRebalance", ())] * DESCRIBES_MAX
    member, effects = run(member, *in_vain)
    assert effects == ()
    member, effects = run(member, HeartbeatAnswered(0))
    assert effects == (SendDescribe(DESCRIBES_MAX),)
    member, effects = run(member, DescribeAnswered(0, "Stable", (raw(),)))
    assert len(told(effects)) == 1
    assert run(member, HeartbeatAnswered(0))[1] == ()
    unlisted = run(OUTSIDE, StartRequested(), joined(), SyncAnswered(0, assignment(A0)))[0]
    assert SendDescribe(DESCRIBES_MAX) in run(unlisted, CoordinatorLost(), HeartbeatAnswered(0))[1]


def test_a_changed_count_is_told_by_the_assignment_to_all_alike() -> None:
    rebalance = HeartbeatAnswered(ErrorCode.REBALANCE_IN_PROGRESS)
    grown = SyncAnswered(0, assignment(A0, counts=(4, 2)))
    member, effects = run(settled(A0), rebalance, joined(6), grown)
    assert told(effects) == [PartitionCountChanged("a", before=3, after=4)]
    assert member.ids.starts() == {"a": 0, "b": 4}


def test_only_the_leader_asks_for_a_rebalance_when_a_count_has_changed() -> None:
    grown = CountsRead({"a": 4, "b": 2})
    follower = settled(A0)
    assert step(follower, grown) == (follower, ())
    leader = replace(follower, leader_id=follower.member_id)
    assert len(joins(step(leader, grown)[1])) == 1
    assert step(leader, CountsRead({"a": 3, "b": 2})) == (leader, ())
    assert step(leader, CountsRead({"a": 3})) == (leader, ())
