"""A broker's topics and log for those who put WAL objects themselves, below /write/v1/.

What a stranger says of his objects is decoded whole before anything acts on it (rule 10), and the
log looks at the objects themselves. A batch must be what the Kafka port would have taken from a
producer without id, as far as its header tells.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from lakelog.broker.metadata import create_missing
from lakelog.clock import Clock
from lakelog.domain.events import Commit, Kind, decode_event
from lakelog.index.messages import WriteTarget
from lakelog.log.placed import BatchRule
from lakelog.log.writes import IdempotentWrite, ObjectPlace, WrittenDomain
from lakelog.model.failures import Corrupt, Refused
from lakelog.model.ids import INTERNAL_TOPICS, TopicId
from lakelog.records.acceptance import TimestampType
from lakelog.topics.topic import Topic

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

COMMIT_S: Final = 25.0
"""How long the look at all objects and the commits may take; below a client's 30 s."""

COMPRESSION: Final = "producer"
"""Every topic keeps batches as they were compressed, whatever its `compression.type` says."""


class WriteService:
    """What a writer of WAL objects asks a broker, before and after it goes to the object store."""

    def __init__(self, broker: "Broker", clock: Clock) -> None:
        self._broker = broker
        self._log = broker.log
        self._clock = clock

    async def cluster_id(self) -> str:
        """The id of the cluster."""
        return self._broker.cluster.cluster_id

    async def place(self) -> ObjectPlace:
        """What objects must be called now."""
        return self._log.writes.place(self._log.zone)

    async def targets(self, names: Sequence[str]) -> Sequence[WriteTarget]:
        """What a writer must know of those of these topics that exist.

        A topic that is not there is made, if a producer that asked for it would have it made.
        """
        await self._broker.topics.current()
        await create_missing(self._broker, list(names))
        wanted = frozenset(names) - INTERNAL_TOPICS
        return [
            _target(topic, tuple(map(self._log.domain_of, topic.streams())))
            for topic in await self._broker.topics.all()
            if topic.name in wanted
        ]

    async def commit(
        self, application: str, version: int, placed: Mapping[int, Sequence[bytes]]
    ) -> Sequence[WrittenDomain]:
        """Make the objects visible; raises `Refused`, `Unavailable` or `OutcomeUnknown`."""
        arrived_s = self._clock.monotonic_s()
        commits = {domain: [_commit(one) for one in some] for domain, some in placed.items()}
        streams = {
            stream
            for some in commits.values()
            for commit in some
            for stream in np.unique(commit.stream).tolist()
        }
        deadline_s = arrived_s + COMMIT_S
        await self._log.prove(streams, arrived_s=arrived_s, deadline_s=deadline_s)
        rules = await self._rules(sorted(streams))
        request = IdempotentWrite(application, version, commits, rules)
        return await self._log.write(request, deadline_s=deadline_s)

    async def _rules(self, streams: Sequence[int]) -> dict[int, BatchRule]:
        """What the topics ask of the batches of their streams; those that are gone are left out."""
        of_topic: dict[TopicId, BatchRule | None] = {}
        rules = {}
        for stream in streams:
            facts = self._log.facts(stream)
            if facts is None:
                continue
            if facts.topic not in of_topic:
                of_topic[facts.topic] = _rule(await self._broker.topics.find_id(facts.topic))
            rule = of_topic[facts.topic]
            if rule is not None:
                rules[stream] = rule
        return rules


def _target(topic: Topic, domains: tuple[int, ...]) -> WriteTarget:
    chosen = topic.settings
    return WriteTarget(
        topic.name,
        bytes(topic.id),
        tuple(topic.streams()),
        domains,
        chosen.message_bytes_max,
        COMPRESSION,
        chosen.timestamp_type is TimestampType.LOG_APPEND_TIME,
        chosen.compacted,
    )


def _commit(data: bytes) -> Commit:
    try:
        event = decode_event(Kind.COMMIT, memoryview(data))
    except Corrupt as reason:
        raise Refused(f"not a commit: {reason}") from reason
    assert isinstance(event, Commit), event
    return event


def _rule(topic: Topic | None) -> BatchRule | None:
    if topic is None:
        return None
    chosen = topic.settings
    is_log_append_time = chosen.timestamp_type is TimestampType.LOG_APPEND_TIME
    return BatchRule(chosen.message_bytes_max, is_log_append_time)
