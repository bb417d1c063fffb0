"""What a broker tells of the snapshots of tables and of groups' offsets, below /read/v1/.

Rules: the snapshots that a table has are read before its history, so that one which expires
meanwhile is found there (`lakelog.catalog.history`). Of tables in another catalog the history says
which snapshots they have. Topics and groups are proved current after the question came (rule 16),
and a topic made again under its name has neither the history nor the offsets of the one before.
"""

import asyncio
from typing import TYPE_CHECKING, Final

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
from lakelog.index.messages import GroupAnswer, Missing, SnapshotsAnswer
from lakelog.index.table_service import TableReads
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Corrupt, Unavailable
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
