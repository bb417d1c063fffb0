"""Whether a batch of an idempotent producer may be handed to the log.

A producer id that no broker of this cluster ever gave out is refused with 59
(UNKNOWN_PRODUCER_ID), and so it takes no room and is never mistaken for the next client's id. It
is the code by which Java's client and librdkafka begin at sequence 0 again and repeat, under the
same id: a producer that outlives its cluster goes on when ids have come as far as its own, or when
it is started again. Kafka takes any id.

A producer that is new on its partition while the domain has no room for one more is refused with
19, on which every client repeats (B9). A known one is always let in.
"""

from typing import TYPE_CHECKING

from lakelog.broker.errors import Attempt, failure_code, verdict_code
from lakelog.domain.outcomes import Verdict
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure

if TYPE_CHECKING:
    from lakelog.broker.broker import Broker
    from lakelog.records.acceptance import AcceptedBatch


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


async def refusal(
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
