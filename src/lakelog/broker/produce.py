"""Produce (0), versions 3 to 13 (0 to 2 are advertised for old librdkafka, and refused).

Topics by name up to v12, by id from v13 on. `error_message` and `record_errors` go out from v8 on,
`log_start_offset` from v5 on. Ignored: nothing. Never sent: `current_leader` and `node_endpoints`
(row 60: the epoch never grows, so clients would not heed them).

Batches are judged one by one; then the request is refused whole (acks, transactions), or a bad
batch gets its code and the good ones are stored (row 19). The request takes its place in the log
when there is room; nothing is awaited between that and the return, so requests of one connection
enter the log in their order (rule 4). The answer is made from the outcome, without a task: a
callback of the log's future fills ours. Plain requests do not come here: `produce_rows` takes them.

Differences from Kafka: a partition that stands twice in a request is refused with 87 (Kafka keeps
the second batch and acknowledges both); null records are 87 (Kafka never answers); a time-out
below a second is a second, because here it bounds the write itself, not the wait for replicas.
"""

import asyncio
from typing import TYPE_CHECKING, Final

import numpy as np

from lakelog.broker.call import Answer, Call, CloseConnection, Endpoint, Later, NoAnswer
from lakelog.broker.errors import Attempt, failure_code, verdict_code
from lakelog.broker.lookup import TopicFinder, check_count, is_writable
from lakelog.broker.produce_checks import (
    FIRST_VERSION_BY_ID,
    batch_rules,
    deadline_s,
    inspect_slowly,
    is_admitted,
    is_slow,
    producer_refusal,
)
from lakelog.domain.state import Verdict
from lakelog.log.values import Appended, Settled
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.records.acceptance import AcceptedBatch, RejectedBatch, inspect
from lakelog.records.batch_rows import rows_of
from lakelog.records.header import is_transactional
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.topic import Topic

ALL_ACKS: Final = (-1, 0, 1)
LOOP_HELD_S_MAX: Final = 0.01
NOTHING: Final = memoryview(b"")
PENDING: Final = PartitionProduceResponse(-1, ErrorCode.REQUEST_TIMED_OUT, -1)
"""Stands where an answer will be."""


async def handle(broker: "Broker", call: Call, request: ProduceRequest) -> Answer | Later:
    """Judge the batches, give them their place in the log, and answer when they are committed."""
    check_count(topic.partition_data for topic in request.topic_data)
    production = _Production(broker, call, request)
    for topic_data in request.topic_data:
        await production.judge_topic(topic_data)
    # Nothing is in the log yet, so the request can still be refused whole, in Kafka's order.
    if production.transactional:
        return production.refuse_all(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)  # row 64
    if request.acks not in ALL_ACKS:
        return production.refuse_all(ErrorCode.INVALID_REQUIRED_ACKS)
    count = len(production.streams)
    if count > 1 and len(set(production.streams)) < count:
        production.refuse_repeated()
    if not production.streams:
        return production.answer(None)
    return await production.append()


class _Production:
    """One Produce request on its way: what is refused, and what goes into the log."""

    __slots__ = (
        "acks",
        "batches",
        "broker",
        "by_id",
        "call",
        "deadline_s",
        "finder",
        "now_ms",
        "places",
        "request",
        "rows",
        "streams",
        "transactional",
        "yielded_s",
    )

    def __init__(self, broker: "Broker", call: Call, request: ProduceRequest) -> None:
        self.broker = broker
        self.call = call
        self.request = request
        self.acks = request.acks
        self.finder = TopicFinder(broker, Attempt.APPENDING)
        self.transactional = request.transactional_id is not None
        self.by_id = call.version >= FIRST_VERSION_BY_ID
        self.deadline_s = deadline_s(call, request)
        self.now_ms = broker.clock.now_ms()
        self.yielded_s = broker.clock.monotonic_s()
        self.rows: list[list[PartitionProduceResponse]] = []
        # Of the batches for the log, in step: the stream, the batch, where its answer belongs.
        self.streams: list[int] = []
        self.batches: list[AcceptedBatch] = []
        self.places: list[tuple[list[PartitionProduceResponse], int, int]] = []

    async def judge_topic(self, topic_data: TopicProduceData) -> None:
        """Judge each batch of a topic."""
        name_or_id = topic_data.topic_id if self.by_id else topic_data.name
        asked = [partition.index for partition in topic_data.partition_data]
        topic: Topic | ErrorCode = await self.finder.find(name_or_id, asked)
        row: list[PartitionProduceResponse] = []
        self.rows.append(row)
        if not isinstance(topic, ErrorCode) and not is_writable(topic.name, self.call):
            topic = ErrorCode.INVALID_TOPIC_EXCEPTION
        if isinstance(topic, ErrorCode):
            for partition in topic_data.partition_data:
                self._refuse(row, partition, _refusal(partition.index, topic))
            return
        rules = batch_rules(topic.settings, now_ms=self.now_ms, version=self.call.version)
        clock = self.broker.clock
        for partition in topic_data.partition_data:
            stream = topic.stream(partition.index)
            if stream is None:
                code = self.finder.no_partition
                self._refuse(row, partition, _refusal(partition.index, code))
                continue
            data = partition.records if partition.records is not None else NOTHING
            batch = await inspect_slowly(data, rules) if is_slow(data) else inspect(data, rules)
            if isinstance(batch, RejectedBatch):
                self._refuse(row, partition, _rejection(partition.index, batch))
            elif is_admitted(self.broker, stream, batch):
                self._take(row, partition.index, stream, batch)
            else:
                await self._take_if_admitted(row, partition.index, stream, batch)
            if clock.monotonic_s() - self.yielded_s > LOOP_HELD_S_MAX:
                # Many batches that unpack to much must not hold up the loop (R2).
                await asyncio.sleep(0)
                self.yielded_s = clock.monotonic_s()

    async def _take_if_admitted(
        self, row: list[PartitionProduceResponse], index: int, stream: int, batch: AcceptedBatch
    ) -> None:
        refused = await producer_refusal(self.broker, stream, batch)
        if refused is None:
            self._take(row, index, stream, batch)
            return
        row.append(_refusal(index, *refused))
        self.transactional = self.transactional or batch.transactional

    def _take(
        self, row: list[PartitionProduceResponse], index: int, stream: int, batch: AcceptedBatch
    ) -> None:
        if batch.transactional:
            self.transactional = True
        self.streams.append(stream)
        self.batches.append(batch)
        self.places.append((row, len(row), index))
        row.append(PENDING)

    def _refuse(
        self,
        row: list[PartitionProduceResponse],
        partition: PartitionProduceData,
        producer_refusal: PartitionProduceResponse,
    ) -> None:
        row.append(producer_refusal)
        if partition.records is not None and is_transactional(partition.records):
            self.transactional = True

    def refuse_all(self, code: ErrorCode) -> Answer:
        """Answer every partition with one code."""
        self.rows = [
            [_refusal(partition.index, code) for partition in topic.partition_data]
            for topic in self.request.topic_data
        ]
        return self.answer(None)

    def refuse_repeated(self) -> None:
        """Take out the batches of partitions that the request names more than once (row 10)."""
        first: dict[int, int] = {}
        repeated = {
            stream for at, stream in enumerate(self.streams) if first.setdefault(stream, at) != at
        }
        kept = [at for at, stream in enumerate(self.streams) if stream not in repeated]
        for stream, (row, at, index) in zip(self.streams, self.places, strict=True):
            if stream in repeated:
                reason = "There must be exactly one record batch per partition"
                row[at] = _refusal(index, ErrorCode.INVALID_RECORD, reason)
        self.streams = [self.streams[at] for at in kept]
        self.batches = [self.batches[at] for at in kept]
        self.places = [self.places[at] for at in kept]

    async def append(self) -> Answer | Later:
        """Wait for room, take the place in the log, and promise an answer."""
        size_bytes = 0
        for batch in self.batches:
            size_bytes += len(batch.data)
        log = self.broker.log
        outcome: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()

        def settle(settled: Settled) -> None:
            if not outcome.done():  # cancelled when the connection is gone; the append goes on
                outcome.set_result(settled)

        try:
            if not log.has_room(size_bytes):
                await log.room(size_bytes, deadline_s=self.deadline_s)
            rows = rows_of(self.streams, self.batches)
            log.hand_over(rows, deadline_s=self.deadline_s, settle=settle)
        except Failure as failure:  # before the hand-over: certainly nothing was written
            return self.answer(failure)
        self.broker.metrics.produced_bytes.inc(size_bytes)
        return Later(outcome, self.answer)

    def answer(self, outcome: Appended | Failure | None) -> Answer:
        """The answer, given what became of the batches; None when none was handed over."""
        if isinstance(outcome, Failure):
            for row, at, index in self.places:
                row[at] = _failed(index, outcome)
        elif outcome is not None:
            self._fill_in(outcome)
        if self.acks == 0:
            return self._silence()
        by_id = self.by_id
        return ProduceResponse(
            responses=tuple(
                TopicProduceResponse(topic_id=topic.topic_id, partition_responses=tuple(row))
                if by_id
                else TopicProduceResponse(name=topic.name, partition_responses=tuple(row))
                for topic, row in zip(self.request.topic_data, self.rows, strict=True)
            )
        )

    def _fill_in(self, appended: Appended) -> None:
        log_starts = self.broker.log.log_starts(np.array(self.streams, dtype=np.int64)).tolist()
        verdicts = appended.verdicts
        failures = appended.failures
        for number, (row, at, index) in enumerate(self.places):
            if number in failures:  # its object failed, others of the request did not
                row[at] = _failed(index, failures[number])
                continue
            verdict = verdicts[number]
            if verdict > Verdict.DUPLICATE:
                row[at] = _refusal(index, verdict_code(Verdict(verdict), by_id=self.by_id))
                continue
            row[at] = PartitionProduceResponse(
                index,
                0,
                appended.offsets[number],
                # Row 20: a duplicate carries the original's timestamp, also with CreateTime.
                appended.timestamps[number]
                if verdict == Verdict.DUPLICATE
                else self.batches[number].append_time_ms,
                log_starts[number],
            )

    def _silence(self) -> NoAnswer:
        """What acks=0 hears: nothing, or the end of the connection (row 17)."""
        for row in self.rows:
            for response in row:
                if response.error_code:
                    code = ErrorCode(response.error_code).name
                    raise CloseConnection(f"acks=0: partition {response.index}: {code}")
        return NoAnswer()


def _refusal(index: int, code: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index, code, -1, error_message=message)


def _failed(index: int, failure: Failure) -> PartitionProduceResponse:
    code = failure_code(failure, Attempt.APPENDING)
    return _refusal(index, code, str(failure) or None)


def _rejection(index: int, batch: RejectedBatch) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index,
        batch.code,
        -1,
        record_errors=tuple(
            BatchIndexAndErrorMessage(record, message) for record, message in batch.record_errors
        ),
        error_message=batch.message,
    )


API: Final = Endpoint(ApiKey.PRODUCE, range(3, 14), handle)
