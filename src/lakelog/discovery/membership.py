"""One member of the group as a state machine: events in, effects out. Pure.

Rules for the shell:
- It does effects in their order, one request to the coordinator at a time; a newer `SendJoin` or
  `SendDescribe` replaces one that still waits. Answers that come too late for the phase change
  nothing.
- While `beats` it sends a heartbeat every interval. If nothing was heard from the coordinator for a
  session timeout it says `SessionExpired`; a JoinGroup that is being waited for on a healthy
  connection counts as heard, since the coordinator keeps such a member.
- Callbacks run one after the other. A `PartitionsRevoked` is answered with `RevocationDone` when
  its callback has returned, at once if there is none.

Rules of the member:
- It claims in JoinGroup all that its owner may still work on: what it holds and what is being let
  go. If the leader says that others wait for it, it joins again when it has let go (KIP-429).
- What it holds is lost, not revoked, when the coordinator may have given it away already.
- The list of members counts when it has the hash that the leader wrote into the assignment. If it
  has another hash again and again while no rebalance comes, a static member was replaced without
  one, and the list counts as it is.
- A leader that made its plan before it saw what this node announces now is asked for another, once.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, assert_never

from lakelog.discovery.assignor import from_topics
from lakelog.discovery.member import (
    DESCRIBES_MAX,
    Member,
    Phase,
    Step,
    announce,
    join,
    let_go,
    lose,
    lose_coordinator,
    overdue,
    refuse,
    settle,
    stop,
    with_state,
)
from lakelog.discovery.membership_events import (
    Announce,
    CallbackOverdue,
    CallbackReturned,
    CoordinatorLost,
    CountsRead,
    DescribeAnswered,
    Effect,
    Event,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    MembersChanged,
    PartitionsAssigned,
    PartitionsRevoked,
    Publish,
    ReadCounts,
    RevocationDone,
    SendDescribe,
    SendSync,
    SessionExpired,
    StartRequested,
    StopRequested,
    SyncAnswered,
)
from lakelog.discovery.node import NodeState, PartitionIds, TopicPartition
from lakelog.discovery.roster import (
    AssignmentFacts,
    decode_facts,
    hash_of,
    nodes_of,
    plan_assignments,
    read_member,
    wanted_topics,
)
from lakelog.model.errors import ErrorCode
from lakelog.wire.codec import decode_assignment
from lakelog.wire.schema import ProtocolError

_ByOwner = (
    StartRequested | RevocationDone | CallbackOverdue | CallbackReturned | Announce | StopRequested
)
_ByGroup = (
    JoinAnswered
    | CountsRead
    | SyncAnswered
    | DescribeAnswered
    | HeartbeatAnswered
    | CoordinatorLost
    | SessionExpired
    | LeaveAnswered
)
_HEARD_IN: Final[dict[type, tuple[Phase, ...]]] = {
    JoinAnswered: (Phase.JOINING,),
    CountsRead: (Phase.SYNCING, Phase.SETTLED),
    SyncAnswered: (Phase.SYNCING,),
    DescribeAnswered: (Phase.SETTLED,),
    HeartbeatAnswered: (Phase.SETTLED,),
    CoordinatorLost: (Phase.JOINING, Phase.SYNCING, Phase.SETTLED),
    SessionExpired: (Phase.JOINING, Phase.SYNCING, Phase.SETTLED),
    LeaveAnswered: (Phase.LEAVING,),
}
"""In which phases what comes from the group means something; in others it comes too late."""


def step(member: Member, event: Event) -> Step:
    """What the member becomes by an event, and what is to be done.

    Raises ConfigError for an `Announce` that says too much; then nothing has changed.
    """
    if member.phase is Phase.GONE:
        return member, ()
    if isinstance(
        event,
        StartRequested
        | RevocationDone
        | CallbackOverdue
        | CallbackReturned
        | Announce
        | StopRequested,
    ):
        return _by_owner(member, event)
    return _by_group(member, event)


def _by_owner(member: Member, event: _ByOwner) -> Step:
    result: Step = (member, ())
    match event:
        case StartRequested():
            if member.phase is Phase.OUTSIDE:
                result = join(member, "start")
        case RevocationDone():
            result = let_go(member, event.number)
        case CallbackOverdue():
            result = overdue(member)
        case CallbackReturned():
            if member.phase is Phase.OVERDUE:
                result = join(member, "a callback that was overdue has returned")
        case Announce():
            result = announce(member, event)
        case StopRequested():
            result = stop(member)
        case _:
            assert_never(event)
    return result


def _by_group(member: Member, event: _ByGroup) -> Step:
    if member.phase not in _HEARD_IN[type(event)]:
        return member, ()
    match event:
        case JoinAnswered():
            result = _joined(member, event)
        case CountsRead():
            result = _counted(member, event.counts)
        case SyncAnswered():
            result = _synced(member, event)
        case DescribeAnswered():
            result = _described(member, event)
        case HeartbeatAnswered():
            result = _beaten(member, event.code)
        case CoordinatorLost() | SessionExpired():
            result = _unheard(member, event)
        case LeaveAnswered():
            result = with_state(replace(member, phase=Phase.GONE), NodeState.LEFT)
        case _:
            assert_never(event)
    return result


def _joined(member: Member, event: JoinAnswered) -> Step:
    if event.code == ErrorCode.MEMBER_ID_REQUIRED:
        return join(replace(member, member_id=event.member_id), "with the member id given")
    if event.code != ErrorCode.NONE:
        return refuse(member, event.code)
    member = replace(
        member,
        phase=Phase.SYNCING,
        member_id=event.member_id,
        leader_id=event.leader,
        joining_generation=event.generation,
    )
    if member.is_leader and not event.skip_assignment:
        member = replace(member, candidates=event.members)
        return member, (ReadCounts(wanted_topics(event.members)),)
    return member, (SendSync(member.member_id, event.generation),)


def _counted(member: Member, counts: Mapping[str, int]) -> Step:
    """The leader plans with the counts, or asks for a rebalance if they differ from its plan."""
    if member.phase is Phase.SYNCING and member.candidates:
        wanted = {topic: counts.get(topic, 0) for topic in wanted_topics(member.candidates)}
        plan = plan_assignments(member.candidates, wanted, leader=member.node.node_id)
        planned = replace(member, candidates=())
        return planned, (SendSync(member.member_id, member.joining_generation, plan),)
    if member.phase is Phase.SYNCING:
        return member, ()
    if member.facts is None:
        return replace(member, ids=PartitionIds.of(member.topics, counts)), ()
    planned_with = member.facts.counts
    differs = any(counts.get(topic, count) != count for topic, count in planned_with.items())
    if member.is_leader and differs:
        return join(member, "a topic has another number of partitions")
    return member, ()


def _synced(member: Member, event: SyncAnswered) -> Step:
    if event.code != ErrorCode.NONE:
        return refuse(member, event.code)
    given, facts = _read_assignment(event.assignment)
    ids = member.ids if facts is None else PartitionIds.of(member.topics, facts.counts)
    changes = ids.changes_since(member.ids)
    effects: list[Effect] = [Publish(change) for change in changes]
    added = tuple(sorted(set(given) - set(member.held)))
    revoked = tuple(sorted(set(member.held) - set(given)))
    is_first = member.generation < 0
    member = replace(
        member,
        phase=Phase.SETTLED,
        generation=member.joining_generation,
        held=given,
        facts=facts,
        ids=ids,
        is_listed=False,
        attempts=0,
        describes=0,
        trouble="",
    )
    if revoked:
        told = PartitionsRevoked(revoked, member.revocations)
        member = replace(
            member, releasing=(*member.releasing, told), revocations=member.revocations + 1
        )
        effects.append(Publish(told))
    if added or is_first:
        effects.append(Publish(PartitionsAssigned(added, member.generation)))
    member, stated = with_state(member, member.settled_state)
    member, then = settle(member)
    return member, (*effects, *stated, *(then or (SendDescribe(),)))


def _read_assignment(
    assignment: bytes,
) -> tuple[tuple[TopicPartition, ...], AssignmentFacts | None]:
    """What was given, and the leader's facts; nothing at all from bytes that are none."""
    try:
        read = decode_assignment(assignment)
    except ProtocolError:
        return (), None
    return from_topics(read.assigned_partitions), decode_facts(read.user_data)


def _described(member: Member, event: DescribeAnswered) -> Step:
    if event.code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return refuse(member, event.code)
    again = replace(member, describes=member.describes + 1)
    is_last = again.describes >= DESCRIBES_MAX
    if event.code != ErrorCode.NONE or event.group_state != "Stable":
        # A rebalance, or no coordinator: the heartbeat tells, and a good one asks once more.
        return again, (() if is_last else (SendDescribe(again.describes),))
    members = [read_member(raw) for raw in event.members]
    if member.facts is not None and hash_of(members) != member.facts.roster_hash and not is_last:
        return again, (SendDescribe(again.describes),)
    nodes = nodes_of(members, member.ids)
    listed = replace(member, nodes=nodes, is_listed=True, describes=0)
    return listed, ((Publish(MembersChanged(nodes)),) if nodes != member.nodes else ())


def _beaten(member: Member, code: int) -> Step:
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        return join(member, "the group rebalances")
    if code != ErrorCode.NONE:
        return refuse(member, code)
    effects: tuple[Effect, ...] = ()
    if member.state is NodeState.SUSPECTED:
        member, effects = with_state(member, member.settled_state)
    if not member.is_listed and member.describes >= DESCRIBES_MAX:
        effects = (*effects, SendDescribe(DESCRIBES_MAX))
    return replace(member, attempts=0, trouble=""), effects


def _unheard(member: Member, event: CoordinatorLost | SessionExpired) -> Step:
    if isinstance(event, CoordinatorLost):
        return lose_coordinator(member, event.reason)
    lost, effects = lose(member)
    if member.phase is not Phase.SETTLED:
        return lost, effects  # JoinGroup is on its way already
    rejoining, then = lose_coordinator(replace(lost, phase=Phase.JOINING), "the session ended")
    return rejoining, (*effects, *then)
