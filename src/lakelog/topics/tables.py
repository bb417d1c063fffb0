"""Tables come and go with their topics, in the built-in catalog.

A topic whose format is parquet has a table soon after it was made; the pointer of a deleted topic's
table is dropped, and a topic made again under its name gets a table of its own. Every broker does
this beside its work: nothing waits for it, a failure is logged and tried again, and two that do it
at once meet at the pointer's version.

A pointer is dropped only if the topic's own key, read after the pointer, says that its topic is
gone: a topic that another broker just made may not be announced yet. A table that is no topic's is
left alone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from lakelog.catalog.pointers import TableCreation
from lakelog.catalog.port import TableDefinition, TableName
from lakelog.meta import keys
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Conflict, Failure
from lakelog.telemetry import event
from lakelog.topics.configs import Format
from lakelog.topics.registry import Topics
from lakelog.topics.topic import Topic, TopicState, decode

EVERY_S: Final = 60.0
"""All tables are looked at this often, should somebody have died half way."""

RETRY_S: Final = 5.0
PAUSE_S: Final = 0.05
"""Topics that are made one after another share a pass."""

AT_ONCE: Final = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Whether and where a broker keeps tables for its topics."""

    enabled: bool = True
    namespace: str = "lakelog"


class TableReconciler:
    """Makes and drops the tables of one namespace as topics come and go."""

    def __init__(
        self,
        topics: Topics,
        store: MetadataStore,
        births: TableCreation,
        *,
        cluster_id: str,
        namespace: str,
    ) -> None:
        self._topics = topics
        self._store = store
        self._births = births
        self._cluster_id = cluster_id
        self._namespace = namespace
        self._changed = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_ONCE)
        topics.on_change(self._changed.set)

    async def run(self) -> None:
        """Keep tables for ever: after each change of the topics, and once a minute."""
        while True:
            self._changed.clear()
            is_done = await self.keep()
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S if is_done else RETRY_S):
                    await self._changed.wait()
            await asyncio.sleep(PAUSE_S)

    async def keep(self) -> bool:
        """One pass over all topics and tables; whether nothing is left to do."""
        try:
            # In this order: a table that is there is of a topic that was there before it.
            owners = await self._births.owners(self._namespace)
            topics = {topic.name: topic for topic in await self._topics.all()}
        except Failure as reason:
            event(_log, "tables_not_looked_at", logging.WARNING, reason=str(reason))
            return False
        work: list[Callable[[], Awaitable[None]]] = []
        names: list[str] = []
        for name, owner in owners.items():
            topic = topics.get(name.table)
            if owner is not None and (topic is None or topic.id.hex() != owner):
                names.append(name.table)
                work.append(partial(self._settle, name, owner))
        for topic in topics.values():
            name = TableName(self._namespace, topic.name)
            if name not in owners and topic.settings.format is Format.PARQUET:
                names.append(topic.name)
                work.append(partial(self._create, topic))
        done = (self._done(topic, one) for topic, one in zip(names, work, strict=True))
        return all(await asyncio.gather(*done))

    async def _done(self, topic: str, work: Callable[[], Awaitable[None]]) -> bool:
        """Whether it was done; a failure of one table is not that of another.

        The work begins when it has a place: one that is cancelled before leaves nothing behind.
        """
        async with self._slots:
            try:
                await work()
            except Conflict:
                return False  # somebody else was faster: look again
            except Failure as reason:
                event(_log, "table_not_kept", logging.WARNING, topic=topic, reason=str(reason))
                return False
        return True

    async def _create(self, topic: Topic) -> None:
        definition = TableDefinition(
            name=TableName(self._namespace, topic.name),
            topic=topic.name,
            topic_id=topic.id.hex(),
            cluster_id=self._cluster_id,
        )
        await self._births.create(definition)
        event(_log, "table_made", topic=topic.name)

    async def _settle(self, name: TableName, owner: str) -> None:
        """Drop the table of a topic that is gone, and make that of one that came since."""
        topic = await self._key(name.table)
        if topic is not None and topic.id.hex() == owner:
            return  # it was not announced yet
        await self._births.drop(name, topic_id=owner)
        event(_log, "table_dropped", topic=name.table)
        is_live = topic is not None and topic.state is TopicState.LIVE
        if topic is not None and is_live and topic.settings.format is Format.PARQUET:
            await self._create(topic)

    async def _key(self, name: str) -> Topic | None:
        """What the topic's key says right now; None for a topic that is gone or on its way out."""
        found = await self._store.get(keys.topic(name))
        if found is None:
            return None
        topic = decode(found.value, version=found.version, defaults=self._topics.defaults)
        return None if topic.state is TopicState.DELETING else topic
