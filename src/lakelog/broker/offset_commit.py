"""OffsetCommit (8), versions 2 to 10.

Topics by name, from v10 on by id. Offsets are kept under the topic's id (K12). Refused partition by
partition, while the others go on: an unknown topic (by name 3, by id 100) or partition (3), and
metadata that is too long (12, counted in UTF-16 units as Java does). Whether the member may commit
is judged where the commit is applied, for the whole request; v9 knows the codes of the consumer
protocol. A request with nothing left to commit is not judged.

Null metadata is the empty one. Any leader epoch is kept and any offset, also a negative one, as in
Kafka. A commit of one partition that repeats is not decoded (`offset_commit_template`). Ignored:
`retention_time_ms` (v2 to v4), as retention is the broker's.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Answer, Call, Endpoint, Later, answered
from lakelog.broker.errors import Attempt
from lakelog.broker.lookup import TopicFinder, check_count
from lakelog.broker.loop_turn import LoopTurn
from lakelog.broker.offset_commit_template import FIRST_VERSION_BY_ID
from lakelog.groups.events import CommitOffsets
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.topic import Topic

UTF_16_UNITS_MAX_PER_CHARACTER: Final = 2
UTF_16_UNIT_BYTES: Final = 2


async def handle(broker: "Broker", call: Call, request: OffsetCommitRequest) -> Answer | Later:
    """Keep the group's offsets."""
    check_count(topic.partitions for topic in request.topics)
    characters_max = broker.groups.options.offset_metadata_characters_max
    commit = _Commit(request, characters_max, broker.loop_turn)
    finder = TopicFinder(broker, Attempt.COORDINATING)
    by_id = call.version >= FIRST_VERSION_BY_ID
    async for part in broker.loop_turn.parts(request.topics):
        for topic in part:
            asked = (partition.partition_index for partition in topic.partitions)
            found = await finder.find(topic.topic_id if by_id else topic.name, asked)
            await commit.add(topic, found, finder)
    if not commit.offsets:
        return commit.response(ErrorCode.NONE)
    if commit.is_single:
        broker.offset_commit_templates.see(call, request)
    event = commit.event(api_version=call.version, time_ms=broker.clock.now_ms())
    return answered(broker.groups.commit(event), commit.response)


@dataclass(slots=True)
class _Commit:
    """One OffsetCommit request: what is left to commit, and the codes of what is not."""

    request: OffsetCommitRequest
    characters_max: int
    turn: LoopTurn
    offsets: list[tuple[bytes, int, int, int, str]] = field(default_factory=list)
    codes: list[list[ErrorCode]] = field(default_factory=list)

    async def add(
        self, topic: OffsetCommitRequestTopic, found: "Topic | ErrorCode", finder: TopicFinder
    ) -> None:
        """Take in the partitions of a topic, or the code for all of them, or for those it lacks."""
        if isinstance(found, ErrorCode):
            self.codes.append([found] * len(topic.partitions))
        else:
            known, missing = range(found.partition_count), finder.no_partition
            self.codes.append(
                [
                    self._add(found, partition) if partition.partition_index in known else missing
                    async for part in self.turn.parts(topic.partitions)
                    for partition in part
                ]
            )

    def _add(self, topic: "Topic", partition: OffsetCommitRequestPartition) -> ErrorCode:
        index = partition.partition_index
        metadata = partition.committed_metadata or ""
        if not _fits(metadata, self.characters_max):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        epoch = partition.committed_leader_epoch
        self.offsets.append((topic.id, index, partition.committed_offset, epoch, metadata))
        return ErrorCode.NONE

    @property
    def is_single(self) -> bool:
        """Whether the request names one partition, and nothing is wrong with it."""
        return self.codes == [[ErrorCode.NONE]]

    def event(self, *, api_version: int, time_ms: int) -> CommitOffsets:
        """What the log is told."""
        return CommitOffsets(
            group_id=self.request.group_id,
            member_id=self.request.member_id,
            instance_id=self.request.group_instance_id,
            generation=self.request.generation_id_or_member_epoch,
            api_version=api_version,
            time_ms=time_ms,
            offsets=tuple(self.offsets),
        )

    def response(self, judged: ErrorCode) -> OffsetCommitResponse:
        """The answer when the commit of what was left was judged so."""
        return OffsetCommitResponse(
            topics=tuple(
                OffsetCommitResponseTopic(
                    topic_id=topic.topic_id,
                    name=topic.name,
                    partitions=tuple(
                        OffsetCommitResponsePartition(partition.partition_index, code or judged)
                        for partition, code in zip(topic.partitions, codes, strict=True)
                    ),
                )
                for topic, codes in zip(self.request.topics, self.codes, strict=True)
            )
        )


def _fits(metadata: str, characters_max: int) -> bool:
    if len(metadata) * UTF_16_UNITS_MAX_PER_CHARACTER <= characters_max:
        return True
    return len(metadata.encode("utf-16-le")) <= characters_max * UTF_16_UNIT_BYTES


def repeat(broker: "Broker", call: Call, body: memoryview) -> Answer | Later | None:
    """Keep an offset like the one that this connection committed before."""
    return broker.offset_commit_templates.commit(broker, call, body)


API: Final = Endpoint(ApiKey.OFFSET_COMMIT, range(2, 11), handle, undecoded=repeat)
