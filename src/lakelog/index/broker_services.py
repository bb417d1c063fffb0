"""What a broker tells of snapshots and groups, and takes from writers of WAL objects.

Rules: the snapshots that a table has are read before its history, so that one which expires
meanwhile is found there (`lakelog.catalog.history`). Of tables in another catalog the history says
which snapshots they have. Topics and groups are proved current after the question came (rule 16),
and a topic made again under its name has neither the history nor the offsets of the one before.

What a stranger says of his objects is decoded whole before anything acts on it (rule 10), and the
log looks at the objects themselves. A batch must be what the Kafka port would have taken from a
producer without id, as far as its header tells.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from lakelog.broker.metadata import create_missing
from lakelog.catalog.history import SnapshotHistory
from lakelog.catalog.port import TOPIC_ID_PROPERTY
from lakelog.catalog.snapshot_page import (
    SnapshotFact,
    SnapshotPage,
    encode_page,
    facts_of,
    kept_from,
)
from lakelog.clock import Clock
from lakelog.domain.commit_event import Commit
from lakelog.domain.events import Kind, decode_event
from lakelog.index.messages import GroupAnswer, Missing, SnapshotsAnswer, WriteTarget
from lakelog.index.table_service import TableReads
from lakelog.log.placed import BatchRule
from lakelog.log.writes import IdempotentWrite, ObjectPlace, WrittenDomain
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Corrupt, Refused, Unavailable
from lakelog.model.ids import INTERNAL_TOPICS, TopicId
from lakelog.records.acceptance import TimestampType
from lakelog.topics.configs import Format
from lakelog.topics.topic import Topic

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

ANSWER_S: Final = 10.0
"""How long the proof may take."""


class SnapshotService:
    """Snapshots and groups as one broker knows them."""

    def __init__(
        self, broker: "Broker", store: MetadataStore, reads: TableReads | None, clock: Clock
    ) -> None:
        self._broker = broker
        self._history = SnapshotHistory(store, clock)
        self._reads = reads
        self._clock = clock

    async def snapshots(self, topic: str) -> SnapshotsAnswer:
        """What is known of the snapshots of a topic's table."""
        found = await self._topic(topic)
        if found is None:
            return SnapshotsAnswer(Missing.TOPIC)
        if self._reads is None or found.settings.format is not Format.PARQUET:
            return SnapshotsAnswer(Missing.TABLE)
        live = await self._live(self._reads, found)
        head = await self._history.head(found.id.hex())
        history_ms = found.settings.snapshots_history_ms
        return SnapshotsAnswer(
            topic_id=bytes(found.id),
            partition_count=len(found.streams()),
            kept_from_ms=kept_from(history_ms, now_ms=self._clock.now_ms()),
            live=encode_page(SnapshotPage(head.live if live is None else tuple(live))),
            recent=encode_page(head.page),
            first=head.first,
            end=head.end,
        )

    async def page(self, topic_id: bytes, number: int) -> bytes | None:
        """A page of older snapshots; None when it was deleted."""
        return await self._history.page(topic_id.hex(), number)

    async def committed(self, group: str, topic: str) -> GroupAnswer:
        """What a group has committed in a topic; `Unavailable` when that is not sure."""
        arrived_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._broker.groups.prove(group, arrived_s=arrived_s)
                found = await self._topic(topic)
        except TimeoutError:
            raise Unavailable(f"what group {group!r} has committed is not sure now") from None
        if found is None:
            return GroupAnswer(Missing.TOPIC)
        table = self._broker.groups.table(group)
        committed = table.offsets.get(group, {})
        if group not in table.groups and not committed:
            return GroupAnswer(Missing.GROUP)
        offsets = {
            partition: one.offset
            for (topic_id, partition), one in committed.items()
            if topic_id == found.id
        }
        if not offsets:
            return GroupAnswer(Missing.OFFSETS)
        return GroupAnswer(
            topic_id=bytes(found.id), partition_count=len(found.streams()), offsets=offsets
        )

    async def _topic(self, name: str) -> Topic | None:
        await self._broker.topics.current()
        return self._broker.topics.cached(name)

    async def _live(self, reads: TableReads, topic: Topic) -> list[SnapshotFact] | None:
        """The snapshots that the table has; None when its catalog is not ours to ask."""
        if not reads.is_builtin:
            return None
        table = await reads.of(topic.name)
        if table.error is not None:
            raise Corrupt(f"the table of {topic.name} cannot be read: {table.error}")
        metadata = table.metadata
        if metadata is None or metadata.properties.get(TOPIC_ID_PROPERTY) != topic.id.hex():
            return []  # it is being made
        return facts_of(one.view() for one in metadata.snapshots)


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
