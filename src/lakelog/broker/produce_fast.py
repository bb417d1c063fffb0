"""The Produce request that most clients send most of the time: one good batch for one partition.

It is handed to the log here, without the bookkeeping that requests of many partitions need; for
small batches that bookkeeping costs more than everything else. Whatever is not plain (an unknown
topic, a refused batch, acks=0, no room …) is left to the general way in `produce`, which must give
the same answers: a test compares the two.

Both ways share what follows.

Inspection. Batches whose inspection takes long are looked at on a thread, so that the loop goes on.
An uncompressed batch of a megabyte is inspected in well under a millisecond. A compressed one has
to be unpacked, at about a gigabyte a second, and a small one may unpack to a lot: what is behind a
kilobyte is known only afterwards. The hop to a thread costs about 0.1 ms, so it is taken where
unpacking can cost more than that.

Admission of idempotent producers. A producer id that no broker of this cluster ever gave out is
refused with 59 (UNKNOWN_PRODUCER_ID), and so it takes no room and is never mistaken for the next
client's id. It is the code by which Java's client and librdkafka begin at sequence 0 again and
repeat, under the same id: a producer that outlives its cluster goes on when ids have come as far as
its own, or when it is started again. Kafka takes any id. A producer that is new on its partition
while the domain has no room for one more is refused with 19, on which every client repeats (B9). A
known one is always let in.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Answer, Call, Later
from lakelog.broker.errors import Attempt, failure_code, verdict_code
from lakelog.broker.lookup import is_writable
from lakelog.domain.state import Verdict
from lakelog.log.values import Settled
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.model.ids import TopicId
from lakelog.records.acceptance import AcceptedBatch, BatchRules, Inspection, inspect
from lakelog.records.header import ATTRIBUTES_OFFSET, CODEC_MASK
from lakelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.records.acceptance import AcceptedBatch
    from lakelog.topics.settings import TopicSettings

SLOW_BYTES_MIN: Final = 128 << 10
"""Compressed batches from here on go to a thread."""

THREADS_MAX: Final = 2


def is_slow(data: memoryview) -> bool:
    """Whether inspecting the batch may hold up the loop."""
    return len(data) >= SLOW_BYTES_MIN and bool(data[ATTRIBUTES_OFFSET + 1] & CODEC_MASK)


async def inspect_slowly(data: memoryview, rules: BatchRules) -> Inspection:
    """Inspect on a thread of the process's pool for it."""
    return await asyncio.get_running_loop().run_in_executor(_pool(), inspect, data, rules)


@cache
def _pool() -> ThreadPoolExecutor:
    """Made when the first such batch comes; its threads end with the process."""
    return ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="inspect")


def is_admitted(broker: "Broker", stream: int, batch: "AcceptedBatch") -> bool:
    """Whether the batch may certainly be handed over, by what is known without asking anybody."""
    producer = batch.producer_id
    if producer < 0:
        return True
    return (
        broker.options.idempotence
        and producer < broker.cluster.producer_ids.known_end
        and broker.log.takes_producer(stream, producer)
    )


async def producer_refusal(
    broker: "Broker", stream: int, batch: "AcceptedBatch"
) -> tuple[ErrorCode, str] | None:
    """Why the batch is not handed over, or None when it may be."""
    if is_admitted(broker, stream, batch):
        return None
    if not broker.options.idempotence:
        return ErrorCode.INVALID_REQUEST, "Idempotent producers are off"
    try:
        known = await broker.cluster.producer_ids.was_given_out(batch.producer_id)
    except Failure as failure:
        return failure_code(failure, Attempt.APPENDING), str(failure)
    if not known:
        reason = f"Producer id {batch.producer_id} was never given out by this cluster"
        return ErrorCode.UNKNOWN_PRODUCER_ID, reason
    if not broker.log.takes_producer(stream, batch.producer_id):
        code = verdict_code(Verdict.PRODUCERS_FULL, by_id=False)
        return code, "There is no room for one more producer (log.producer_bytes_max)"
    return None


FIRST_VERSION_BY_ID: Final = 13
TIMEOUT_MS_MIN: Final = 1_000
TIMEOUT_MS_MAX: Final = 120_000
"""A client that asks for more is told after two minutes that the outcome is unknown."""

# Members of an enum are looked up by name at every use, which takes longer than comparing numbers.
_DUPLICATE: Final = int(Verdict.DUPLICATE)
_ACKNOWLEDGED: Final = (-1, 1)


def hand_over_alone(broker: "Broker", call: Call, request: ProduceRequest) -> Later | None:
    """Hand over the only batch of the request, if it is plain; None: nothing was done."""
    topics = request.topic_data
    if (
        len(topics) != 1
        or request.acks not in _ACKNOWLEDGED
        or request.transactional_id is not None
    ):
        return None
    topic_data = topics[0]
    if len(topic_data.partition_data) != 1:
        return None
    accepted = _accepted(broker, call, topic_data)
    if accepted is None:
        return None
    stream, batch = accepted
    outcome: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()

    def settle(settled: Settled) -> None:
        if not outcome.done():  # cancelled when the connection is gone; the append goes on
            outcome.set_result(settled)

    broker.log.hand_over((stream,), (batch,), deadline_s=deadline_s(call, request), settle=settle)
    broker.metrics.produced_bytes.inc(len(batch.data))
    by_id = call.version >= FIRST_VERSION_BY_ID
    answer = partial(_answer, broker, topic_data, stream, batch, by_id)
    return Later(outcome, answer)


def deadline_s(call: Call, request: ProduceRequest) -> float:
    """When the outcome is told to be unknown, on the monotonic clock."""
    timeout_ms = min(max(request.timeout_ms, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX)
    return call.arrived_s + timeout_ms / 1000


def batch_rules(settings: "TopicSettings", *, now_ms: int, version: int) -> BatchRules:
    """What the topic and the request ask of a batch."""
    return BatchRules(
        now_ms=now_ms,
        produce_version=version,
        message_bytes_max=settings.message_bytes_max,
        timestamp_type=settings.timestamp_type,
        timestamp_before_max_ms=settings.timestamp_before_max_ms,
        timestamp_after_max_ms=settings.timestamp_after_max_ms,
        compacted=settings.compacted,
    )


def _accepted(
    broker: "Broker", call: Call, topic_data: TopicProduceData
) -> tuple[int, AcceptedBatch] | None:
    """The stream and the batch, if both are known to be good and the log has room."""
    if call.version >= FIRST_VERSION_BY_ID:
        topic = broker.topics.cached_id(TopicId(topic_data.topic_id))
    else:
        topic = broker.topics.cached(topic_data.name)
    partition = topic_data.partition_data[0]
    data = partition.records
    if topic is None or data is None or is_slow(data) or not is_writable(topic.name, call):
        return None
    stream = topic.stream(partition.index)
    if stream is None:
        return None
    rules = batch_rules(topic.settings, now_ms=broker.clock.now_ms(), version=call.version)
    batch = inspect(data, rules)
    if not isinstance(batch, AcceptedBatch) or batch.transactional:
        return None
    if not is_admitted(broker, stream, batch):
        return None
    return (stream, batch) if broker.log.has_room(len(batch.data)) else None


def _answer(
    broker: "Broker",
    topic: TopicProduceData,
    stream: int,
    batch: AcceptedBatch,
    by_id: bool,
    settled: Settled,
) -> Answer:
    index = topic.partition_data[0].index
    if isinstance(settled, Failure):
        code = failure_code(settled, Attempt.APPENDING)
        row = PartitionProduceResponse(index, code, -1, error_message=str(settled) or None)
    else:
        verdict = settled.verdicts[0]
        if verdict > _DUPLICATE:
            code = verdict_code(Verdict(verdict), by_id=by_id)
            row = PartitionProduceResponse(index, code, -1)
        else:
            # Row 20: a duplicate carries the original's timestamp, also with CreateTime.
            duplicate = verdict == _DUPLICATE
            row = PartitionProduceResponse(
                index,
                0,
                settled.offsets[0],
                settled.timestamps[0] if duplicate else batch.append_time_ms,
                broker.log.log_start(stream),
            )
    answered = (
        TopicProduceResponse(topic_id=topic.topic_id, partition_responses=(row,))
        if by_id
        else TopicProduceResponse(name=topic.name, partition_responses=(row,))
    )
    return ProduceResponse(responses=(answered,))
