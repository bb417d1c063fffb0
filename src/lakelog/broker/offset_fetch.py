"""OffsetFetch (9), versions 1 to 10.

Topics by name, from v10 on by id; null topics (v2+) are all that the group has offsets of and that
still exist. What was never committed is -1 with NONE, as is everything of a group or a name that
there is not; an id that there is not is 100. v1 to v7 ask for one group: its error stands in the
partitions in v1, at the top in v2 to v7; from v8 on each group has its own (row 80). Members of
consumer groups say who they are from v9 on and must be up to date (row 38). Ignored:
`require_stable`, as there are no transactions.

No offset is ever made up (P6): the answer comes after proofs of currency for the group's domain
and for the topics, because the id behind a name decides (K12). Without them it is 16, which
consumers of every version survive.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, CloseConnection, Endpoint, check_named
from lakelog.broker.lookup import are_topics_current, check_count, group_of, topic_of, unproven
from lakelog.groups import consumer
from lakelog.groups.state import CommittedOffset, ConsumerGroup
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.codec import lift, lower
from lakelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

FIRST_VERSION_BY_ID: Final = 10
NO_OFFSET: Final = -1
ANSWERED_MAX: Final = 1_000_000
"""The most partitions of one answer: "all of this group" can be asked for many times over."""


async def handle(broker: "Broker", call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Tell what each group has committed."""
    lifted = lift(request, call.version)
    check_named(lifted.groups)
    check_count(topic.partition_indexes for group in lifted.groups for topic in group.topics or ())
    group_ids = dict.fromkeys(group.group_id for group in lifted.groups)
    stale, is_current = await asyncio.gather(
        unproven(broker, call, group_ids), are_topics_current(broker)
    )
    reading = _Reading(broker, call.version)
    answers = []
    async for part in broker.loop_turn.parts(lifted.groups):
        for group in part:
            if group.group_id in stale or not is_current:
                answers.append(_failed(group, ErrorCode.NOT_COORDINATOR))
            else:
                answers.append(await reading.answer(group))
    return lower(OffsetFetchResponse(groups=tuple(answers)), call.version, lifted)


def _failed(group: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)


class _Reading:
    """One OffsetFetch request whose groups and topics are current."""

    def __init__(self, broker: "Broker", version: int) -> None:
        self._broker = broker
        self._by_id = version >= FIRST_VERSION_BY_ID
        self._turn = broker.loop_turn
        self._answered = 0

    async def answer(self, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """What one group has committed; closes the connection of who asks for too much."""
        group = group_of(self._broker, asked.group_id)
        if isinstance(group, ConsumerGroup):
            code = consumer.judge_fetch(group, member_id=asked.member_id, epoch=asked.member_epoch)
            if code:
                return _failed(asked, code)
        table = self._broker.groups.table(asked.group_id)
        committed = table.offsets.get(asked.group_id, {})
        if asked.topics is None:
            topics = await self._all(committed)
        else:
            topics = [
                await self._named(topic, committed)
                async for part in self._turn.parts(asked.topics)
                for topic in part
            ]
        return OffsetFetchResponseGroup(asked.group_id, tuple(topics))

    async def _all(
        self, committed: Mapping[tuple[bytes, int], CommittedOffset]
    ) -> list[OffsetFetchResponseTopics]:
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, partition in committed:
            by_topic.setdefault(topic_id, []).append(partition)
        made = []
        async for part in self._turn.parts(list(by_topic.items())):
            for topic_id, partitions in part:
                topic = topic_of(self._broker, topic_id)
                if topic is not None:
                    found = await self._found(topic_id, sorted(partitions), committed)
                    made.append(OffsetFetchResponseTopics(topic_id, found, topic.name))
        return sorted(made, key=lambda topic: topic.name)

    async def _named(
        self,
        asked: OffsetFetchRequestTopics,
        committed: Mapping[tuple[bytes, int], CommittedOffset],
    ) -> OffsetFetchResponseTopics:
        if self._by_id:
            topic = topic_of(self._broker, asked.topic_id)
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = self._broker.topics.cached(asked.name)
            missing = ErrorCode.NONE
        if topic is None:
            found = tuple(_none(index, missing) for index in asked.partition_indexes)
        else:
            found = await self._found(topic.id, asked.partition_indexes, committed)
        return OffsetFetchResponseTopics(asked.topic_id, found, asked.name)

    async def _found(
        self,
        topic_id: bytes,
        partitions: Sequence[int],
        committed: Mapping[tuple[bytes, int], CommittedOffset],
    ) -> tuple[OffsetFetchResponsePartitions, ...]:
        self._answered += len(partitions)
        if self._answered > ANSWERED_MAX:
            raise CloseConnection(f"{self._answered} partitions asked for; at most {ANSWERED_MAX}")
        found = [
            _partition(index, committed.get((topic_id, index)))
            async for part in self._turn.parts(partitions)
            for index in part
        ]
        return tuple(found)


def _partition(index: int, committed: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if committed is None:
        return _none(index, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        index, committed.offset, committed.leader_epoch, committed.metadata
    )


def _none(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(index, NO_OFFSET, error_code=code)


API: Final = Endpoint(ApiKey.OFFSET_FETCH, range(1, 11), handle)
