"""OffsetCommits of one partition that repeat: answered without decoding and without encoding.

A consumer commits again and again for one group, generation, member and topic, so its requests are
equal in every byte but those of the partition and the offset, which stand side by side, and so are
the answers but for the partition and the code. What is the same is looked into once, and kept as an
`OffsetCommitTemplate`; what is asked then is whether the bytes are the same.

Rules:

- Anything that a broker may find otherwise the next time (topic, partition, group) is looked up
  each time. Where it is not as it should be the request goes the ordinary way and hears why.
- A template is made when the like of a commit comes a second time in a row on one connection, so
  that whoever commits to many topics in turn, or with other metadata each time, pays for none.
"""

import struct
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from lakelog.broker.call import Answer, Call, EncodedAnswer, Later, answered
from lakelog.groups.events import CommitOffsets
from lakelog.model.errors import ErrorCode
from lakelog.model.ids import TopicId
from lakelog.wire.codec import encode
from lakelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.topic import Topic

FIRST_VERSION_BY_ID: Final = 10
CONNECTIONS_MAX: Final = 4_096
REQUEST_BYTES_MAX: Final = 1_024
"""With the one above a bound of some megabytes; a larger commit has metadata, and is rare."""

OFFSET: Final = struct.Struct(">iq")
"""Partition and offset, as requests have them."""

VERDICT: Final = struct.Struct(">ih")
"""Partition and code, as answers have them."""

Like: TypeAlias = tuple[int, OffsetCommitRequest]
"""The version, and the request without its partition and offset: what two that are alike share."""


class OffsetCommitTemplate(Struct, frozen=True):
    """All that is the same in the commits of one member to one topic."""

    like: Like
    before: bytes
    after: bytes
    answer_before: bytes
    answer_after: bytes

    def find(self, body: memoryview, version: int) -> tuple[int, int] | None:
        """The partition and the offset of a request that is one of these."""
        size = len(self.before) + OFFSET.size + len(self.after)
        if len(body) != size or version != self.like[0]:
            return None
        found = bytes(body)
        if not (found.startswith(self.before) and found.endswith(self.after)):
            return None
        partition, offset = OFFSET.unpack_from(found, len(self.before))
        return partition, offset

    def event(self, topic: "Topic", partition: int, offset: int, time_ms: int) -> CommitOffsets:
        """What the log is told."""
        version, request = self.like
        asked = request.topics[0].partitions[0]
        epoch, metadata = asked.committed_leader_epoch, asked.committed_metadata or ""
        return CommitOffsets(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
            api_version=version,
            time_ms=time_ms,
            offsets=((topic.id, partition, offset, epoch, metadata),),
        )

    def answer(self, partition: int, code: ErrorCode) -> EncodedAnswer:
        """The answer when the commit was judged so."""
        return EncodedAnswer(
            b"".join((self.answer_before, VERDICT.pack(partition, code), self.answer_after))
        )


def like_of(request: OffsetCommitRequest, version: int) -> Like:
    """What the request shares with others; it commits one partition."""
    return version, _with_offset(request, 0, 0)


def template_of(like: Like) -> OffsetCommitTemplate:
    """Look into what these commits share."""
    version, request = like
    asked = [b"".join(encode(_with_offset(request, at, at), version)) for at in (0, -1)]
    told = [b"".join(encode(_response(request, at), version)) for at in (0, -1)]
    before, after = _around(*asked, size=OFFSET.size)
    answer_before, answer_after = _around(*told, size=VERDICT.size)
    return OffsetCommitTemplate(like, before, after, answer_before, answer_after)


class CommitTemplateTable:
    """The commits that connections repeat."""

    def __init__(self) -> None:
        self._by_connection: dict[int, Like | OffsetCommitTemplate] = {}
        """What the connection's last commit was like, or, where it came again, its template."""

    def __len__(self) -> int:
        return len(self._by_connection)

    def template_for(self, connection: int) -> OffsetCommitTemplate | None:
        """The template of a connection's commits, if they repeat."""
        known = self._by_connection.get(connection)
        return known if isinstance(known, OffsetCommitTemplate) else None

    def commit(self, broker: "Broker", call: Call, body: memoryview) -> Answer | Later | None:
        """Commit if the connection has a template for it; None where it goes the ordinary way."""
        template = self.template_for(call.connection)
        found = None if template is None else template.find(body, call.version)
        if template is None or found is None:
            return None
        partition, offset = found
        topic = _topic(broker, template.like)
        if topic is None or not 0 <= partition < topic.partition_count:
            return None
        event = template.event(topic, partition, offset, broker.clock.now_ms())
        return answered(broker.groups.commit(event), partial(template.answer, partition))

    def see(self, call: Call, request: OffsetCommitRequest) -> None:
        """A commit of one partition, in which nothing was wrong, went the ordinary way."""
        if call.request_bytes > REQUEST_BYTES_MAX:
            return
        like = like_of(request, call.version)
        known = self._by_connection
        if known.pop(call.connection, None) == like:
            known[call.connection] = template_of(like)
            return
        if len(known) >= CONNECTIONS_MAX:
            del known[next(iter(known))]  # connections that are gone were not seen for longest
        known[call.connection] = like


def _topic(broker: "Broker", like: Like) -> "Topic | None":
    version, request = like
    asked = request.topics[0]
    if version >= FIRST_VERSION_BY_ID:
        return broker.topics.cached_id(TopicId(asked.topic_id))
    return broker.topics.cached(asked.name)


def _with_offset(request: OffsetCommitRequest, partition: int, offset: int) -> OffsetCommitRequest:
    (topic,) = request.topics
    (asked,) = topic.partitions
    moved = replace(asked, partition_index=partition, committed_offset=offset)
    return replace(request, topics=(replace(topic, partitions=(moved,)),))


def _response(request: OffsetCommitRequest, number: int) -> OffsetCommitResponse:
    (asked,) = request.topics
    partitions = (OffsetCommitResponsePartition(number, number),)
    topic = OffsetCommitResponseTopic(asked.topic_id, partitions, asked.name)
    return OffsetCommitResponse(topics=(topic,))


def _around(zeros: bytes, ones: bytes, *, size: int) -> tuple[bytes, bytes]:
    """What stands before and behind the only bytes in which two messages differ."""
    start = next(at for at, byte in enumerate(zeros) if byte != ones[at])
    end = start + size
    assert zeros[:start] + ones[start:end] + zeros[end:] == ones, (zeros, ones)
    return zeros[:start], zeros[end:]
