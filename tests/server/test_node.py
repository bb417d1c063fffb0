"""A node as a whole: what it survives at its start, and what it says of itself."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.sides import both, side

from lakelog.catalog.pointers import Pointers
from lakelog.catalog.port import TableName
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.kafka_client.dialing import dial
from lakelog.meta import keys
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.model.failures import NotFound, Refused, Unavailable
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import Buffer
from lakelog.server.adapters import InstrumentedObjects
from lakelog.server.node import Node, NodeEnvironment, NodeOptions
from lakelog.server.options import Address
from lakelog.telemetry import MetricsRegistry
from lakelog.topics.cluster import http_addresses, open_cluster
from lakelog.topics.tables import TableOptions
from lakelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

OPTIONS = NodeOptions(listen=Address("127.0.0.1", 0), machine="here")


def new_world() -> NodeEnvironment:
    clock = SystemClock()
    return NodeEnvironment(
        MemoryMetadataStore(clock), MemoryObjectStore(clock), clock, SystemEntropy()
    )


@asynccontextmanager
async def running(world: NodeEnvironment, options: NodeOptions = OPTIONS) -> AsyncIterator[Node]:
    node = Node(world, options)
    try:
        await node.start()
        yield node
    finally:
        await node.close()


async def created(node: Node, name: str) -> int:
    """The error code of a topic that is asked for, and so made."""
    async with await dial(str(node.address)) as client:
        request = MetadataRequest((MetadataRequestTopic(name=name),))
        answer = await client.call(request, MetadataResponse)
        return answer.topics[0].error_code


def test_a_first_broker_that_died_before_its_log_began_is_no_loss() -> None:
    async def scenario() -> None:
        world = new_world()
        await open_cluster(world.store, world.entropy)
        async with running(world) as node:
            assert await created(node, "t") == 0

    asyncio.run(scenario())


def test_a_log_that_was_lost_is_refused() -> None:
    async def scenario() -> None:
        world = new_world()
        await open_cluster(world.store, world.entropy)
        await world.store.put(keys.NEXT_STREAM, b"5")
        with pytest.raises(Refused, match="empty although the cluster exists"):
            async with running(world):
                pass

    asyncio.run(scenario())


def test_a_node_can_stop_and_another_goes_on_where_it_was() -> None:
    async def scenario() -> None:
        clock = SystemClock()
        store, objects = MemoryMetadataStore(clock), MemoryObjectStore(clock)
        for _ in range(3):
            world = NodeEnvironment(store, objects, clock, SystemEntropy())
            async with running(world) as node:
                assert await created(node, "t") == 0
                assert await node.index_of("t", 0) == []
                with pytest.raises(NotFound, match="no partition 1"):
                    await node.index_of("t", 1)
                with pytest.raises(NotFound, match="no topic 'u'"):
                    await node.index_of("u", 0)

    asyncio.run(scenario())


def test_a_node_is_known_by_its_http_port() -> None:
    async def scenario() -> None:
        for http, advertised, expected in (
            (None, None, []),
            (Address("127.0.0.1", 81), None, ["127.0.0.1:81"]),
            (Address("0.0.0.0", 81), None, ["127.0.0.1:81"]),
            (Address("0.0.0.0", 81), Address("b1.example", 9092), ["b1.example:81"]),
            (Address("::1", 81), None, ["[::1]:81"]),
        ):
            world = new_world()
            options = replace(OPTIONS, http=http, advertised=advertised)
            async with running(world, options):
                assert await http_addresses(world.store) == expected

    asyncio.run(scenario())


def test_a_port_on_every_interface_is_reached_by_the_machine_s_name() -> None:
    async def scenario() -> None:
        every = Address("0.0.0.0", 0)
        world = new_world()
        async with running(world, replace(OPTIONS, listen=every, http=Address("::", 81))):
            assert await http_addresses(world.store) == ["here:81"]

    asyncio.run(scenario())


def test_a_topic_gets_a_table_soon() -> None:
    async def scenario() -> None:
        world = new_world()
        options = replace(OPTIONS, tables=TableOptions(namespace="n"))
        async with asyncio.timeout(10), running(world, options) as node:
            assert await created(node, "t") == 0
            pointers = Pointers(world.store)
            while not await pointers.tables("n"):
                await asyncio.sleep(0)
            assert await pointers.get(TableName("n", "t")) is not None

    asyncio.run(scenario())


def test_a_topic_gets_no_table_when_tables_are_off() -> None:
    async def scenario() -> None:
        world = new_world()
        options = replace(OPTIONS, tables=TableOptions(enabled=False))
        async with running(world, options) as node:
            assert await created(node, "t") == 0
        assert await world.store.range(keys.TABLES) == []
        assert [info.key async for info in world.objects.list("tables/")] == []

    asyncio.run(scenario())


def test_a_node_says_whether_it_is_starting_serving_or_stopping() -> None:
    async def scenario() -> None:
        node = Node(new_world(), OPTIONS)
        checks = node.checks()
        assert checks["broker"]() == "the broker is starting"
        await node.start()
        assert {name: check() for name, check in checks.items()} == dict.fromkeys(checks)
        await node.drain()
        assert checks["broker"]() == "the broker is stopping"
        await node.close()

    asyncio.run(scenario())


@both
def test_a_node_without_kernels_says_once_that_it_is_slower(
    compiled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with running(new_world()):
            pass

    with side(compiled):
        asyncio.run(scenario())
    said = [record.message for record in caplog.records if record.message == "kernels_missing"]
    assert said == ([] if compiled else ["kernels_missing"])


def test_a_clock_that_is_not_believed_is_told_and_counted_but_is_no_reason_to_leave() -> None:
    class Jumped(MemoryObjectStore):
        async def clock_skew_ms(self) -> int:
            return -7_200_000

    async def scenario() -> None:
        clock = SystemClock()
        objects = Jumped(clock)
        node = Node(
            NodeEnvironment(MemoryMetadataStore(clock), objects, clock, SystemEntropy()), OPTIONS
        )
        told = node.checks()["clock"]
        assert told() is None
        await node._objects.clock_skew_ms()
        assert "7200 s ahead" in str(told())
        assert "lakelog admin clock --accept" in str(told())
        assert node.metrics.registry.get_sample_value("lakelog_clock_skew_seconds") == -7200

    asyncio.run(scenario())


def test_a_store_that_breaks_its_promises_is_refused_before_anything_is_founded() -> None:
    class Forgetful(MemoryObjectStore):
        async def put(self, key: str, parts: Sequence[Buffer]) -> None:
            del key, parts

    async def scenario() -> None:
        clock = SystemClock()
        world = NodeEnvironment(
            MemoryMetadataStore(clock), Forgetful(clock), clock, SystemEntropy()
        )
        with pytest.raises(Refused, match="cannot be read at once"):
            async with running(world):
                pass
        assert await world.store.range(keys.ROOT) == []

    asyncio.run(scenario())


def test_a_watched_store_remembers_its_trouble_until_it_is_over() -> None:
    class Moody(MemoryObjectStore):
        well = True

        async def put(self, key: str, parts: Sequence[Buffer]) -> None:
            if not self.well:
                raise Unavailable("out to lunch")
            await super().put(key, parts)

    async def scenario() -> None:
        moody = Moody(SystemClock())
        watched = InstrumentedObjects(moody, MetricsRegistry())
        await watched.put("a", [b"1"])
        troubles = [watched.trouble]
        moody.well = False
        with pytest.raises(Unavailable):
            await watched.put("b", [b"1"])
        troubles.append(watched.trouble)
        assert bytes(await watched.get("a")) == b"1"
        assert [*troubles, watched.trouble] == [None, "out to lunch", None]

    asyncio.run(scenario())


def test_a_config_that_was_altered_for_all_is_in_effect_on_all_nodes_and_after_a_start() -> None:
    async def scenario() -> None:
        world = new_world()
        second = replace(OPTIONS, broker_id=2)
        async with running(world) as one, running(world, second) as two:
            followed = asyncio.Event()
            two.broker.broker_configs.on_change(followed.set)
            await one.broker.broker_configs.alter("", lambda _: {"log.retention.ms": "5"})
            assert one.broker.topics.defaults == {"retention.ms": "5"}
            async with asyncio.timeout(30):
                await followed.wait()
            assert two.broker.topics.defaults == {"retention.ms": "5"}
        async with running(world) as again:
            assert again.broker.topics.defaults == {"retention.ms": "5"}

    asyncio.run(scenario())
