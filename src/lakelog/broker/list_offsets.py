"""ListOffsets (2), versions 1 to 11.

Topics by name. Checked: `current_leader_epoch` from v4 on. `isolation_level` changes nothing
while there are no transactions: the last stable offset is the head. `timeout_ms` counts from v10
on. Ignored: `replica_id`.

Row 57 says what each special timestamp means and since which version it has been one; any other
negative timestamp is 35. Every answer is given after one proof of currency for the whole request
(rule 16): a consumer that asks for the end after a write was acknowledged must see it (L7).
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.broker.errors import Attempt, failure_code
from lakelog.broker.lookup import TopicFinder, check_count, epoch_code, unproven_code
from lakelog.log.timestamps import TimestampMatch
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.model.ids import LEADER_EPOCH
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.topic import Topic

TIMEOUT_S_DEFAULT: Final = 10.0
TIMEOUT_S_MAX: Final = 60.0
LOOKUPS_AT_ONCE: Final = 16
"""Searches by timestamp may read the object store; this many of a request run together."""


class SpecialTimestamp(IntEnum):
    """Timestamps that are no times."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


KNOWN_SINCE: Final[dict[int, int]] = {
    SpecialTimestamp.LATEST: 0,
    SpecialTimestamp.EARLIEST: 0,
    SpecialTimestamp.MAX_TIMESTAMP: 7,
    SpecialTimestamp.EARLIEST_LOCAL: 8,
    SpecialTimestamp.LATEST_TIERED: 9,
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
"""The version in which each special timestamp appeared."""

NO_TIMESTAMP_MS: Final = -1
NEVER: Final = 1 << 15
"""A version that no client speaks."""


async def handle(broker: "Broker", call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Find the offset that each partition's timestamp asks for."""
    check_count(topic.partitions for topic in request.topics)
    return await _Lookup(broker, call, request).answer()


def is_supported(timestamp_ms: int, *, version: int) -> bool:
    """Whether a client of that version may ask for the timestamp."""
    return timestamp_ms >= 0 or version >= KNOWN_SINCE.get(timestamp_ms, NEVER)


@dataclass(frozen=True, slots=True)
class _Row:
    """A partition of the request: its stream, or its code."""

    partition: ListOffsetsPartition
    stream: int = -1
    code: ErrorCode = ErrorCode.NONE


class _Lookup:
    """One ListOffsets request."""

    def __init__(self, broker: "Broker", call: Call, request: ListOffsetsRequest) -> None:
        self._broker = broker
        self._finder = TopicFinder(broker, Attempt.READING)
        self._call = call
        self._request = request
        asked_s = request.timeout_ms / 1000 if request.timeout_ms > 0 else TIMEOUT_S_DEFAULT
        self._deadline_s = call.arrived_s + min(asked_s, TIMEOUT_S_MAX)
        self._named = Counter(
            (topic.name, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        )

    async def answer(self) -> ListOffsetsResponse:
        """Look every partition up, in the order of the request."""
        turn = self._broker.loop_turn
        topics = [
            (topic.name, await self._open(topic))
            async for part in turn.parts(self._request.topics)
            for topic in part
        ]
        unproven = await unproven_code(
            self._broker,
            (row.stream for _, rows in topics for row in rows),
            arrived_s=self._call.arrived_s,
            deadline_s=self._deadline_s,
        )
        made = []
        async for opened in turn.parts(topics):
            for name, rows in opened:
                if rows:
                    found = await self._respond(rows, unproven)
                    made.append(ListOffsetsTopicResponse(name=name, partitions=tuple(found)))
        return ListOffsetsResponse(topics=tuple(made))

    async def _open(self, topic: ListOffsetsTopic) -> list[_Row]:
        """Find the partitions; one that is named more than once appears once, with 42 (row 29)."""
        asked = [partition.partition_index for partition in topic.partitions]
        found = await self._finder.find(topic.name, asked)
        rows = []
        async for part in self._broker.loop_turn.parts(topic.partitions):
            for partition in part:
                times = self._named.pop((topic.name, partition.partition_index), 0)
                if times:
                    rows.append(self._row(partition, times, found))
        return rows

    def _row(self, partition: ListOffsetsPartition, times: int, topic: "Topic | ErrorCode") -> _Row:
        if times > 1:
            return _Row(partition, code=ErrorCode.INVALID_REQUEST)
        if not is_supported(partition.timestamp, version=self._call.version):
            return _Row(partition, code=ErrorCode.UNSUPPORTED_VERSION)
        if isinstance(topic, ErrorCode):
            return _Row(partition, code=topic)
        stream = topic.stream(partition.partition_index)
        if stream is None:
            return _Row(partition, code=self._finder.no_partition)
        code = epoch_code(partition.current_leader_epoch)
        return _Row(partition, code=code) if code else _Row(partition, stream)

    async def _respond(
        self, rows: list[_Row], unproven: ErrorCode
    ) -> list[ListOffsetsPartitionResponse]:
        answers = [
            self._known(row, row.code or unproven)
            async for part in self._broker.loop_turn.parts(rows)
            for row in part
        ]
        searched = [at for at, answer in enumerate(answers) if answer is None]
        for start in range(0, len(searched), LOOKUPS_AT_ONCE):
            some = searched[start : start + LOOKUPS_AT_ONCE]
            found = await asyncio.gather(*(self._search(rows[at]) for at in some))
            for at, answer in zip(some, found, strict=True):
                answers[at] = answer
        return [answer for answer in answers if answer is not None]

    def _known(self, row: _Row, code: ErrorCode) -> ListOffsetsPartitionResponse | None:
        """The answer that needs no search, or None."""
        index = row.partition.partition_index
        if code:
            return ListOffsetsPartitionResponse(index, code)
        facts = self._broker.log.facts(row.stream)
        if facts is None:  # dropped a moment ago
            return ListOffsetsPartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        match row.partition.timestamp:
            case SpecialTimestamp.LATEST:
                return _found(index, TimestampMatch(facts.head, NO_TIMESTAMP_MS))
            case SpecialTimestamp.EARLIEST | SpecialTimestamp.EARLIEST_LOCAL:
                # Nothing is tiered: the local log is the log.
                return _found(index, TimestampMatch(facts.log_start, NO_TIMESTAMP_MS))
            case SpecialTimestamp.LATEST_TIERED | SpecialTimestamp.EARLIEST_PENDING_UPLOAD:
                return _found(index, None)
            case _:
                return None

    async def _search(self, row: _Row) -> ListOffsetsPartitionResponse:
        log, timestamp_ms = self._broker.log, row.partition.timestamp
        index = row.partition.partition_index
        left_s = max(self._deadline_s - self._broker.clock.monotonic_s(), 0)
        try:
            async with asyncio.timeout(left_s):
                if timestamp_ms == SpecialTimestamp.MAX_TIMESTAMP:
                    return _found(index, await log.max_timestamp(row.stream))
                return _found(index, await log.find_timestamp(row.stream, timestamp_ms))
        except Failure as failure:
            return ListOffsetsPartitionResponse(index, failure_code(failure, Attempt.READING))
        except TimeoutError:
            return ListOffsetsPartitionResponse(index, ErrorCode.REQUEST_TIMED_OUT)


def _found(index: int, found: TimestampMatch | None) -> ListOffsetsPartitionResponse:
    if found is None:
        return ListOffsetsPartitionResponse(index)
    return ListOffsetsPartitionResponse(index, 0, found.timestamp_ms, found.offset, LEADER_EPOCH)


API: Final = Endpoint(ApiKey.LIST_OFFSETS, range(1, 12), handle)
