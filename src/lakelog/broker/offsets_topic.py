"""The topic `__consumer_offsets`, for clients and tools that look for it.

Kafka keeps groups in it; here they are in the domain logs, and nothing is ever written to this
topic. It is made, as in Kafka, when the first client asks for the coordinator of a group, with the
configs that it has there. From then on it is a topic like any other, internal, with 50 empty
partitions: what lists, describes or reads topics needs no special case. Producing to it is refused.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from lakelog.model.failures import Failure
from lakelog.model.ids import INTERNAL_TOPICS, OFFSETS_TOPIC
from lakelog.telemetry import event
from lakelog.topics.failures import TopicFailure

if TYPE_CHECKING:
    from lakelog.broker.broker import Broker
    from lakelog.broker.call import Call

PARTITIONS: Final = 50
"""What `offsets.topic.num.partitions` is by default."""

REPLICATION_FACTOR: Final = 1
"""What Metadata shows; the object store replicates."""

CONFIGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "104857600",
    "lakelog.format": "kfs",
}
"""Kafka's own, and that there is no table of it."""

CREATION_S_MAX: Final = 2.0
"""How long a client waits for it at most; it does not need the topic."""

ADMIN_CLIENT_ID: Final = "__admin_client"
"""The client id by which Kafka lets its own tools write to internal topics."""

_log = logging.getLogger("lakelog.broker")


def is_writable(name: str, call: "Call") -> bool:
    """Whether this client may produce to a topic of that name."""
    return name not in INTERNAL_TOPICS or call.client_id == ADMIN_CLIENT_ID


async def ensure(broker: "Broker") -> None:
    """Make the topic, if it is not there; a failure is nobody's business but the log's."""
    if broker.topics.cached(OFFSETS_TOPIC) is not None:
        return
    try:
        async with asyncio.timeout(CREATION_S_MAX):
            await broker.topics.create(
                OFFSETS_TOPIC,
                partitions=PARTITIONS,
                replication_factor=REPLICATION_FACTOR,
                configs=CONFIGS,
            )
    except (TopicFailure, Failure, TimeoutError) as reason:  # it is tried again with the next one
        event(_log, "offsets_topic_not_made", logging.DEBUG, reason=repr(reason))
