import asyncio

import pytest
from tests.broker.admin_stage import AdminStage, Scene, run
from tests.topics.stepped_stores import Fault, make

from lakelog.broker.call import BrokerOptions
from lakelog.broker.metadata import CREATED_MAX
from lakelog.model.errors import ErrorCode
from lakelog.model.ids import BrokerId
from lakelog.topics.routing import BrokerNode
from lakelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

VERSION = 13
NO_OPERATIONS = -2_147_483_648


def named(*names: str, create: bool = False, operations: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in names),
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=operations,
    )


async def ask(scene: Scene, request: MetadataRequest, version: int = VERSION) -> MetadataResponse:
    return await scene.ask(request, MetadataResponse, version)


async def one(
    scene: Scene, request: MetadataRequest, version: int = VERSION
) -> MetadataResponseTopic:
    (found,) = (await ask(scene, request, version)).topics
    return found


def test_a_topic_is_shown_with_its_partitions_led_by_live_brokers() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        made = await make(scene.broker.topics, "orders", 3)
        found = await ask(scene, named("orders"))
        assert found.cluster_id == scene.broker.cluster.cluster_id
        assert found.controller_id == 1
        (topic,) = found.topics
        assert (topic.name, topic.topic_id, topic.is_internal) == ("orders", made.id, False)
        assert topic.topic_authorized_operations == NO_OPERATIONS
        assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2]
        for partition in topic.partitions:
            assert partition.error_code == ErrorCode.NONE
            assert (partition.leader_id, partition.leader_epoch) == (1, 0)
            assert partition.replica_nodes == partition.isr_nodes == (1,)
            assert partition.offline_replicas == ()

    run(scenario)


@pytest.mark.parametrize(
    ("version", "request_", "expected"),
    [
        (0, MetadataRequest(topics=()), ["a", "b"]),
        (1, MetadataRequest(topics=None), ["a", "b"]),
        (1, MetadataRequest(topics=()), []),
        (13, MetadataRequest(topics=None), ["a", "b"]),
        (13, MetadataRequest(topics=()), []),
        (4, named("b", "b", "a"), ["b", "a"]),
    ],
)
def test_null_asks_for_all_and_an_empty_list_for_none_but_in_version_0(
    version: int, request_: MetadataRequest, expected: list[str]
) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        for name in ("b", "a"):
            await make(scene.broker.topics, name)
        found = await ask(scene, request_, version)
        assert [topic.name for topic in found.topics] == expected

    run(scenario)


def test_a_topic_that_another_broker_made_a_moment_ago_is_shown() -> None:
    async def scenario(stage: AdminStage) -> None:
        here, there = await stage.broker(1), await stage.broker(2)
        made = await make(here.broker.topics, "orders")
        assert (await one(there, named("orders"))).topic_id == made.id
        await here.broker.topics.delete(made)
        gone = await one(there, named("orders"))
        assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


@pytest.mark.parametrize("version", [0, 1, 3, 4, 9, 13])
def test_an_unknown_topic_is_made_when_both_sides_allow_it(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        found = await one(scene, named("orders", create=True), version)
        assert (found.error_code, len(found.partitions)) == (ErrorCode.NONE, 4)

    run(scenario, AdminStage(options=BrokerOptions(num_partitions=4)))


@pytest.mark.parametrize(
    ("version", "create", "allowed"), [(4, False, True), (4, True, False), (1, True, False)]
)
def test_an_unknown_topic_is_not_made_when_one_side_forbids_it(
    version: int, create: bool, allowed: bool
) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        found = await one(scene, named("orders", create=create), version)
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert stage.streams.alive == {}

    run(scenario, AdminStage(options=BrokerOptions(auto_create_topics=allowed)))


def test_before_version_4_a_client_cannot_forbid_it() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        found = await one(scene, named("orders", create=False), 3)
        assert found.error_code == ErrorCode.NONE

    run(scenario)


def test_names_that_cannot_be_are_not_made() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "a.b")
        asked = ("bad name!", "..", "a_b", "__consumer_offsets", "__cluster_metadata")
        found = await ask(scene, named(*asked, create=True))
        assert [topic.error_code for topic in found.topics] == [17, 17, 17, 3, 3]
        assert [topic.is_internal for topic in found.topics] == [False, False, False, True, False]
        assert len(await scene.broker.topics.all()) == 1

    run(scenario)


def test_a_hundred_clients_on_two_brokers_that_ask_at_once_make_one_topic() -> None:
    async def scenario(stage: AdminStage) -> None:
        scenes = [await stage.broker(1), await stage.broker(2)]
        found = await asyncio.gather(
            *(one(scene, named("orders", create=True)) for scene in scenes for _ in range(50))
        )
        assert {topic.error_code for topic in found} == {ErrorCode.NONE}
        assert len({topic.topic_id for topic in found}) == 1
        assert len(stage.streams.alive) == 1

    run(scenario)


def test_one_request_makes_a_limited_number_of_topics() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        names = [f"t{number}" for number in range(CREATED_MAX + 5)]
        found = await ask(scene, named(*names, create=True))
        codes = [topic.error_code for topic in found.topics]
        assert codes == [0] * CREATED_MAX + [ErrorCode.LEADER_NOT_AVAILABLE] * 5
        again = await ask(scene, named(*names, create=True))
        assert {topic.error_code for topic in again.topics} == {ErrorCode.NONE}

    run(scenario)


def test_ids_are_answered_from_version_12_on() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        made = await make(scene.broker.topics, "orders")
        unknown = bytes(15) + b"\x05"
        request = MetadataRequest(
            topics=(
                MetadataRequestTopic(made.id, None),
                MetadataRequestTopic(unknown, None),
                MetadataRequestTopic(bytes(16), "ignored beside ids"),
            ),
            include_topic_authorized_operations=True,
        )
        found = await ask(scene, request, 12)
        known, missing = found.topics
        assert (known.name, known.topic_id) == ("orders", made.id)
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert (missing.name, missing.topic_id) == (None, unknown)
        assert missing.topic_authorized_operations == NO_OPERATIONS

    run(scenario)


@pytest.mark.parametrize(
    ("version", "topic"),
    [
        (10, MetadataRequestTopic(bytes(15) + b"\x05", "orders")),
        (11, MetadataRequestTopic(bytes(15) + b"\x05", None)),
        (11, MetadataRequestTopic(bytes(16), None)),
        (12, MetadataRequestTopic(bytes(16), None)),
    ],
)
def test_a_topic_that_is_named_wrongly_spoils_the_request(
    version: int, topic: MetadataRequestTopic
) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        request = MetadataRequest(topics=(topic, MetadataRequestTopic(name="other")))
        found = await ask(scene, request, version)
        assert [t.error_code for t in found.topics] == [ErrorCode.INVALID_REQUEST] * 2
        assert (found.brokers, found.cluster_id, found.controller_id) == ((), None, -1)

    run(scenario)


def test_operations_are_told_when_asked_for() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders")
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="unknown")),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        found = await ask(scene, request, 9)
        assert [topic.topic_authorized_operations for topic in found.topics] == [3576, 3576]
        assert found.cluster_authorized_operations == 8096
        plain = await ask(scene, named("orders"), 9)
        assert plain.cluster_authorized_operations == NO_OPERATIONS

    run(scenario)


def test_a_client_is_told_the_address_it_came_by_unless_another_is_advertised() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker(1)
        (shown,) = (await ask(scene, named())).brokers
        assert (shown.node_id, shown.host, shown.port) == (1, "127.0.0.1", 19092)
        nodes = [
            BrokerNode(BrokerId(2), "0.0.0.0", 9093, "z", "m1", advertised=False),
            BrokerNode(BrokerId(3), "far.test", 9094, None, "m3", advertised=False),
            BrokerNode(BrokerId(4), "public.test", 9095, None, "m1"),
        ]
        for node in nodes:
            await stage.broker(node.id, node)
        await scene.broker.cluster.refresh()
        found = await ask(scene, named())
        assert [(n.node_id, n.host, n.port, n.rack) for n in found.brokers] == [
            (1, "127.0.0.1", 19092, None),
            (2, "127.0.0.1", 9093, "z"),
            (3, "far.test", 9094, None),
            (4, "public.test", 9095, None),
        ]

    run(scenario)


def test_a_client_in_a_zone_sees_that_zone_alone() -> None:
    async def scenario(stage: AdminStage) -> None:
        await stage.broker(1, BrokerNode(BrokerId(1), "a.test", 9092, "a", "m1"))
        scene = await stage.broker(2, BrokerNode(BrokerId(2), "b.test", 9092, "b", "m2"))
        await make(scene.broker.topics, "orders", 20)
        inside = await ask(scene.as_client("zone_id=a"), named("orders"))
        assert [node.node_id for node in inside.brokers] == [1]
        assert inside.controller_id == 1
        assert {p.leader_id for p in inside.topics[0].partitions} == {1}
        outside = await ask(scene.as_client("zone_id=c"), named("orders"))
        assert [node.node_id for node in outside.brokers] == [1, 2]
        assert {p.leader_id for p in outside.topics[0].partitions} == {1, 2}

    run(scenario)


def test_without_the_store_known_topics_are_served_and_others_are_not_called_unknown() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        made = await make(scene.broker.topics, "orders")
        taken = scene.steps.taken
        scene.steps.faults = dict.fromkeys(range(taken, taken + 10_000), Fault.UNAVAILABLE)
        asked = await ask(scene, named("orders", "other", "bad name!", create=True))
        assert [topic.error_code for topic in asked.topics] == [0, 5, 17]
        by_id = MetadataRequest(
            topics=(
                MetadataRequestTopic(made.id, None),
                MetadataRequestTopic(bytes(15) + b"\1", None),
            )
        )
        found = await ask(scene, by_id)
        assert [topic.error_code for topic in found.topics] == [0, 5]

    run(scenario)


def test_three_partitions_lead_on_three_brokers_whichever_is_asked() -> None:
    async def scenario(stage: AdminStage) -> None:
        scenes = [await stage.broker(number) for number in (1, 2, 3)]
        await make(scenes[0].broker.topics, "orders", 3)
        seen = set()
        for scene in scenes:
            await scene.broker.cluster.refresh()
            answer = await ask(scene, named("orders"))
            seen.add(tuple(partition.leader_id for partition in answer.topics[0].partitions))
        (leaders,) = seen
        assert sorted(leaders) == [1, 2, 3]

    run(scenario)
