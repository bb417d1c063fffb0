"""What the leader of a generation decides: every member's assignment, as bytes. Pure."""

from collections.abc import Iterable, Mapping

from lakelog.discovery.assignment import by_topic, cooperative_step
from lakelog.discovery.assignor import LaminarPartitionAssignor
from lakelog.discovery.roster import RawMember, hash_of, read_member
from lakelog.discovery.user_data import AssignmentFacts, digest, encode_facts, fitting_node_ids
from lakelog.wire.codec import ConsumerAssignment, encode_assignment


def wanted_topics(raws: Iterable[RawMember]) -> tuple[str, ...]:
    """Every topic that any member reads, sorted."""
    return tuple(sorted({topic for raw in raws for topic in read_member(raw).member.topics or ()}))


def plan_assignments(
    raws: Iterable[RawMember], counts: Mapping[str, int], *, leader: str
) -> tuple[tuple[str, bytes], ...]:
    """Each member's id and assignment, for SyncGroup; `leader` is the leader's node id."""
    read = [read_member(raw) for raw in raws]
    members = [each.member for each in read]
    partitions = {topic: range(count) for topic, count in counts.items()}
    target = LaminarPartitionAssignor.assign(members, partitions)
    given, awaited = cooperative_step(members, target)
    roster = hash_of(read)
    node_ids = fitting_node_ids((each.node.node_id for each in read), len(read))
    plan = []
    for each in read:
        facts = AssignmentFacts(
            counts=counts,
            roster_hash=roster,
            seen=digest(each.announced),
            leader=leader,
            is_awaited=each.member.member_id in awaited,
            member_count=len(read),
            node_ids=node_ids,
        )
        assignment = ConsumerAssignment(
            assigned_partitions=by_topic(given[each.member.member_id]),
            user_data=None if each.node.is_foreign else encode_facts(facts),
        )
        plan.append((each.member.member_id, encode_assignment(assignment)))
    return tuple(plan)
