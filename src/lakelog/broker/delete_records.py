"""DeleteRecords (21), versions 0 to 2.

-1 stands for the log end. Beyond the end, or below -1: 1 with low watermark -1. At or below the
log start: nothing changes and the current log start is the answer (row 71). A topic that is only
compacted refuses with 44, as Kafka does. When `timeout_ms` is over, the answer is 7: the trim may
still come.

The end is judged after a proof of currency (rule 16): "up to the end" must mean the end.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.broker.errors import Attempt, failure_code
from lakelog.broker.lookup import TopicFinder, check_count
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.log.log import Log

LOG_END: Final = -1
NO_WATERMARK: Final = -1
TIMEOUT_S_MIN: Final = 1.0
TIMEOUT_S_MAX: Final = 120.0


async def handle(
    broker: "Broker", call: Call, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Move the log start of each partition to where the request says."""
    check_count(topic.partitions for topic in request.topics)
    timeout_s = min(max(request.timeout_ms / 1000, TIMEOUT_S_MIN), TIMEOUT_S_MAX)
    trim = _Trim(broker, call, deadline_s=call.arrived_s + timeout_s)
    turn = broker.loop_turn
    async for part in turn.parts(request.topics):
        for topic in part:
            await trim.open(topic)
    await trim.run()
    results = []
    async for part in turn.parts(request.topics):
        for topic in part:
            rows = [
                trim.result(topic.name, partition)
                async for partitions in turn.parts(topic.partitions)
                for partition in partitions
            ]
            results.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(rows)))
    return DeleteRecordsResponse(topics=tuple(results))


class _Trim:
    """One DeleteRecords request."""

    def __init__(self, broker: "Broker", call: Call, *, deadline_s: float) -> None:
        self._broker = broker
        self._finder = TopicFinder(broker, Attempt.ADMINISTERING)
        self._arrived_s = call.arrived_s
        self._deadline_s = deadline_s
        self._streams: dict[tuple[str, int], int | ErrorCode] = {}
        self._offsets: dict[int, int] = {}
        self._outcomes: dict[int, int | ErrorCode] = {}

    async def open(self, topic: DeleteRecordsTopic) -> None:
        """Find the partitions of a topic."""
        asked = (partition.partition_index for partition in topic.partitions)
        found = await self._finder.find(topic.name, asked)
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            if isinstance(found, ErrorCode):
                self._streams[key] = found
                continue
            stream = found.stream(partition.partition_index)
            if stream is None:
                self._streams[key] = self._finder.no_partition
            elif not found.settings.delete:
                self._streams[key] = ErrorCode.POLICY_VIOLATION
            else:
                self._streams[key] = stream
                self._offsets[stream] = partition.offset

    async def run(self) -> None:
        """Prove the ends, decide, and trim all partitions with one append a domain."""
        if not self._offsets:
            return
        log = self._broker.log
        try:
            await log.prove(self._offsets, arrived_s=self._arrived_s, deadline_s=self._deadline_s)
            moved = self._moved(log)
            if moved:
                left_s = self._deadline_s - self._broker.clock.monotonic_s()
                async with asyncio.timeout(max(left_s, 0)):
                    self._outcomes |= await log.trim(moved)
        except Failure as failure:
            self._fail(failure_code(failure, Attempt.ADMINISTERING))
        except TimeoutError:
            self._fail(ErrorCode.REQUEST_TIMED_OUT)

    def _fail(self, code: ErrorCode) -> None:
        for stream in self._offsets:
            self._outcomes.setdefault(stream, code)

    def _moved(self, log: "Log") -> dict[int, int]:
        """The streams whose log start has to move; the others have their outcome now."""
        moved = {}
        for stream, offset in self._offsets.items():
            facts = log.facts(stream)
            if facts is None:
                self._outcomes[stream] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            wanted = facts.head if offset == LOG_END else offset
            if not 0 <= wanted <= facts.head:
                self._outcomes[stream] = ErrorCode.OFFSET_OUT_OF_RANGE
            elif wanted <= facts.log_start:
                self._outcomes[stream] = facts.log_start
            else:
                moved[stream] = wanted
        return moved

    def result(self, topic: str, partition: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        """What became of one partition."""
        index = partition.partition_index
        stream = self._streams[topic, index]
        outcome = stream if isinstance(stream, ErrorCode) else self._outcomes[stream]
        if isinstance(outcome, ErrorCode):
            return DeleteRecordsPartitionResult(index, NO_WATERMARK, outcome)
        if outcome < 0:  # dropped before the trim was applied
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return DeleteRecordsPartitionResult(index, NO_WATERMARK, unknown)
        return DeleteRecordsPartitionResult(index, outcome)


API: Final = Endpoint(ApiKey.DELETE_RECORDS, range(3), handle)
