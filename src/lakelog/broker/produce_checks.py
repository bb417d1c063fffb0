"""What is asked of a batch before it is handed to the log, whichever way its request takes.

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
from functools import cache
from typing import TYPE_CHECKING, Final

from lakelog.broker.errors import Attempt, failure_code, verdict_code
from lakelog.domain.state import Verdict
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.records.acceptance import BatchRules, Inspection, inspect
from lakelog.records.header import ATTRIBUTES_OFFSET, CODEC_MASK

if TYPE_CHECKING:
    from lakelog.broker.call import Broker, Call
    from lakelog.records.acceptance import AcceptedBatch
    from lakelog.topics.settings import TopicSettings
    from lakelog.wire.messages.produce import ProduceRequest

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
"""From here on topics are named by their ids."""

TIMEOUT_MS_MIN: Final = 1_000
TIMEOUT_MS_MAX: Final = 120_000
"""A client that asks for more is told after two minutes that the outcome is unknown."""


def deadline_s(call: "Call", request: "ProduceRequest") -> float:
    """When the outcome is told to be unknown, on the monotonic clock."""
    return call.arrived_s + bounded_timeout_ms(request.timeout_ms) / 1000


def bounded_timeout_ms(timeout_ms: int) -> int:
    """The time-out that a request gets for the one it asks for."""
    return min(max(timeout_ms, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX)


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
