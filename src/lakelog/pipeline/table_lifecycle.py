"""Tables come and go with their topics, whoever was asleep when that happened.

A table whose topic is gone is forgotten by the catalog; its objects stay for the collector. That a
topic is gone is known by a list of topics that was asked for after the table was seen, for a table
is made after its topic.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence

from lakelog.catalog.port import CLUSTER_ID_PROPERTY, TableName, Tables
from lakelog.catalog.port import TableView as CatalogView
from lakelog.index.ports import IndexedTopic
from lakelog.model.failures import Failure, Refused
from lakelog.pipeline.ports import LimitedPorts
from lakelog.pipeline.round_counters import RoundCounters
from lakelog.pipeline.saga.table_view import definition_of, topic_of


class TableLifecycle:
    """The tables of all topics of a cluster."""

    def __init__(self, ports: LimitedPorts) -> None:
        self._ports = ports
        self._cluster_id = ""
        self._strange: set[TableName] = set()
        """Tables of others in our namespace: they are looked at once."""

    async def names(self, counters: RoundCounters) -> set[TableName] | None:
        """The tables there are; None when the catalog cannot be asked, which is reported."""
        namespace = self._ports.options.namespace
        self._ports.has_catalog = True
        try:
            return set(await self._ports.ask_table(lambda tables: tables.names(namespace)))
        except Failure as error:
            self._ports.has_catalog = False
            counters.problem(f"the catalog: {type(error).__name__}: {error}")
            return None

    async def keep(
        self, names: set[TableName], topics: Sequence[IndexedTopic], counters: RoundCounters
    ) -> None:
        """Make tables that are missing and forget those of no topic, seen before `topics` were."""
        by_table = {self._ports.table_name(topic.name): topic for topic in topics}
        missing = [
            topic
            for name, topic in sorted(by_table.items())
            if topic.has_table and name not in names
        ]
        async with asyncio.TaskGroup() as group:
            for topic in missing:
                group.create_task(self._kept(self.table_of(topic), topic.name, counters))
            self._strange &= names
            for name in sorted(names - by_table.keys() - self._strange):
                group.create_task(self._kept(self._forget(name, topics), name.table, counters))

    async def table_of(self, topic: IndexedTopic) -> CatalogView:
        """The topic's table, made now if there is none; `Refused` when the name is another's."""
        table = await self._ports.table(topic.name)
        if table is not None and topic_of(table) == topic.topic_id:
            return table
        # Of another topic: of one that is gone it is dropped, and else it is not ours to drop.
        if table is not None and not await self._forgotten(table, await self._ports.topics()):
            raise Refused(f"{table.name}: is the table of another topic; choose another namespace")
        definition = definition_of(
            topic.name,
            topic.topic_id,
            cluster_id=await self._cluster(),
            namespace=self._ports.options.namespace,
        )
        return await self._ports.change_table(lambda tables: tables.create(definition))

    async def _forget(self, name: TableName, topics: Iterable[IndexedTopic]) -> None:
        table = await self._ports.ask_table(lambda tables: tables.load(name))
        if table is not None and not await self._forgotten(table, topics):
            self._strange.add(name)

    async def _forgotten(self, table: CatalogView, topics: Iterable[IndexedTopic]) -> bool:
        """Forget the table if it was that of a topic of ours which is gone."""
        topic_id = topic_of(table)
        ours = table.properties.get(CLUSTER_ID_PROPERTY) == await self._cluster()
        if topic_id is None or not ours or any(topic.topic_id == topic_id for topic in topics):
            return False

        async def drop(tables: Tables) -> None:
            await tables.drop(table.name, topic_id=topic_id.hex())

        await self._ports.change_table(drop)
        return True

    async def _kept(self, work: Awaitable[object], topic: str, counters: RoundCounters) -> None:
        try:
            await work
        except Failure as error:
            counters.problem(f"its table: {type(error).__name__}: {error}", topic=topic)

    async def _cluster(self) -> str:
        if not self._cluster_id:
            self._cluster_id = await self._ports.cluster_id()
        return self._cluster_id
