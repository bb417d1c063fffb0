"""What a member wants done at the cluster, and what comes of it as an event.

Rules: an errand always ends in an event, whatever the cluster does; nothing is repeated here. Where
nobody answers the coordinator is lost; where somebody refuses the code says it, also for a refusal
that has no code of its own: wrong credentials, or no version in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from lakelog.discovery.calls import GroupCalls
from lakelog.discovery.membership_values import (
    CoordinatorLost,
    CountsRead,
    Describe,
    Described,
    Event,
    HeartbeatAnswered,
    Join,
    Joined,
    Leave,
    LeaveAnswered,
    ReadCounts,
    Sync,
    Synced,
)
from lakelog.discovery.roster import RawMember
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.failures import (
    AuthenticationFailed,
    BrokerError,
    ClientFailure,
    Unsupported,
    Untrusted,
)
from lakelog.model.errors import ErrorCode
from lakelog.wire.messages.describe_groups import DescribeGroupsDescribedGroup
from lakelog.wire.messages.join_group import JoinGroupResponse


@dataclass(frozen=True, slots=True)
class Beat:
    """Send Heartbeat."""

    member_id: str
    generation: int


Errand = Join | ReadCounts | Sync | Describe | Leave | Beat


class Errands:
    """Does errands for one member."""

    def __init__(self, cluster: KafkaCluster, calls: GroupCalls, protocol: str) -> None:
        self._cluster = cluster
        self._calls = calls
        self._protocol = protocol

    async def run(self, errand: Errand) -> Event:
        """Do it and say what came of it."""
        try:
            return await self._run(errand)
        except (AuthenticationFailed, Untrusted):
            return _refused(errand, ErrorCode.SASL_AUTHENTICATION_FAILED)
        except Unsupported:
            return _refused(errand, ErrorCode.UNSUPPORTED_VERSION)
        except BrokerError as refusal:
            return _refused(errand, refusal.code)
        except ClientFailure as reason:
            return LeaveAnswered() if isinstance(errand, Leave) else CoordinatorLost(str(reason))

    async def counts(self, topics: Sequence[str]) -> dict[str, int]:
        """The partition counts of those topics that there are; raises ClientFailure."""
        if not topics:
            return {}
        found = await self._cluster.topics(topics, fresh=True)
        counts = {}
        for topic in found.values():
            if topic.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                # A count that is not known must not be taken for none.
                raise BrokerError(topic.error, f"topic {topic.name!r}")
            if not topic.error:
                counts[topic.name] = len(topic.partitions)
        return counts

    def forget_coordinator(self) -> None:
        """Look for it again before the next errand."""
        self._calls.forget_coordinator()

    async def beat_aside(self, beat: Beat) -> int | None:
        """Beat on a connection of its own, past what is parked; None if nobody answers."""
        try:
            return await self._calls.heartbeat_aside(beat.member_id, beat.generation)
        except ClientFailure:
            return None

    async def _run(self, errand: Errand) -> Event:
        match errand:
            case Join():
                return _joined(
                    await self._calls.join(
                        errand.member_id,
                        protocol=self._protocol,
                        metadata=errand.metadata,
                        reason=errand.reason,
                    )
                )
            case Sync():
                synced = await self._calls.sync(
                    errand.member_id,
                    errand.generation,
                    protocol=self._protocol,
                    assignments=dict(errand.assignments),
                )
                return Synced(synced.error_code, bytes(synced.assignment))
            case Beat():
                return HeartbeatAnswered(
                    await self._calls.heartbeat(errand.member_id, errand.generation)
                )
            case Describe():
                return _described(await self._calls.describe())
            case ReadCounts():
                return CountsRead(await self.counts(errand.topics))
            case Leave():
                await self._calls.leave(errand.member_id, reason="this node stops")
                return LeaveAnswered()
            case _:
                assert_never(errand)


def _joined(answer: JoinGroupResponse) -> Joined:
    return Joined(
        code=answer.error_code,
        member_id=answer.member_id,
        generation=answer.generation_id,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        members=tuple(
            RawMember(each.member_id, each.group_instance_id, bytes(each.metadata))
            for each in answer.members
        ),
    )


def _described(group: DescribeGroupsDescribedGroup | None) -> Described:
    if group is None:
        return Described(ErrorCode.GROUP_ID_NOT_FOUND)
    return Described(
        code=group.error_code,
        group_state=group.group_state,
        members=tuple(
            RawMember(
                each.member_id,
                each.group_instance_id,
                bytes(each.member_metadata),
                bytes(each.member_assignment),
            )
            for each in group.members
        ),
    )


def _refused(errand: Errand, code: int) -> Event:
    """The errand's answer with that code."""
    match errand:
        case Join():
            return Joined(code)
        case Sync() | ReadCounts():
            return Synced(code)
        case Describe():
            return Described(code)
        case Beat():
            return HeartbeatAnswered(code)
        case Leave():
            return LeaveAnswered()
        case _:
            assert_never(errand)
