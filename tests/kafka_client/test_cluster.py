"""A cluster: how it is found, what is remembered, and how it survives its brokers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from bench.broker import free_ports
from tests.kafka_client.scripted import Asked, HangUp, Reply, Script, one_broker, scripted
from tests.lake.running import running_broker

from lakelog.clock import SeededEntropy, SystemClock
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.failures import (
    AuthenticationFailed,
    BadConfig,
    BrokerError,
    ClientFailure,
    Closed,
    TimedOut,
    Unreachable,
)
from lakelog.kafka_client.setting_keys import BrokerAddress
from lakelog.kafka_client.settings import ClientSettings
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from lakelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from lakelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from lakelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from lakelog.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from lakelog.wire.messages.sasl_handshake import SaslHandshakeResponse

T = TypeVar("T")
FAST = {"retry.backoff.ms": 1, "retry.backoff.max.ms": 5, "reconnect.backoff.ms": 1}


ONE_ATTEMPT = {
    "default_api_timeout_ms": 60_000,
    "retry_backoff_ms": 120_000,
    "retry_backoff_max_ms": 120_000,
}
"""There is no time for a second attempt, and any machine has the time for a first one."""


def cluster(*servers: object, **config: object) -> KafkaCluster:
    named = {key.replace("_", "."): value for key, value in config.items()}
    settings = ClientSettings.parse(
        {"bootstrap.servers": [str(server) for server in servers], **FAST, **named}
    )
    return KafkaCluster(settings, clock=SystemClock(), entropy=SeededEntropy("cluster"))


async def using(made: KafkaCluster, work: Callable[[], Awaitable[T]]) -> T:
    """Start, work, close."""
    try:
        await made.start()
        return await work()
    finally:
        await made.close()


def failure_of(made: KafkaCluster) -> ClientFailure:
    async def nothing() -> None: ...

    with pytest.raises(ClientFailure) as found:
        asyncio.run(asyncio.wait_for(using(made, nothing), 20))
    return found.value


def test_a_real_broker_is_found_with_its_topics_and_coordinator(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.create("orders", 3)
        made = cluster(broker.running.address)

        async def work() -> None:
            assert list(made.brokers.values()) == [
                BrokerAddress(broker.running.address.host, broker.running.address.port)
            ]
            topics = await made.topics(["orders", "none"])
            orders = topics["orders"]
            assert [view.partition for view in orders.partitions] == [0, 1, 2]
            assert all(view.leader in made.brokers for view in orders.partitions)
            assert made.topic_names[orders.topic_id] == "orders"
            assert topics["none"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert "orders" in await made.topics(None)
            leader = await made.connection(orders.partitions[0].leader)
            assert leader is await made.connection(orders.partitions[0].leader)
            coordinator = await made.coordinator("group")
            assert coordinator is await made.coordinator("group")
            assert len({id(leader), id(coordinator), id(await made.any_connection())}) == 3
            answer = await coordinator.call(
                DescribeGroupsRequest(("group",)), DescribeGroupsResponse
            )
            assert answer.groups[0].group_id == "group"
            found = await made.call_any(DescribeClusterRequest(), DescribeClusterResponse)
            assert found.cluster_id == made.cluster_id

        asyncio.run(using(made, work))


def test_any_bootstrap_server_that_answers_will_do() -> None:
    async def run() -> None:
        dead = [BrokerAddress("127.0.0.1", port) for port in free_ports(3)]
        async with scripted({}) as broker:
            made = cluster(*dead, broker.endpoint)
            await made.start()
            assert made.brokers == {1: broker.endpoint}
            await made.close()

    asyncio.run(run())


def test_when_no_server_answers_each_of_them_is_named() -> None:
    ports = free_ports(2)
    failure = failure_of(cluster(*(f"127.0.0.1:{port}" for port in ports), **ONE_ATTEMPT))
    assert isinstance(failure, Unreachable)
    for port in ports:
        assert f"nobody answers at 127.0.0.1:{port}: Connection refused" in str(failure)


def test_wrong_credentials_are_not_tried_again() -> None:
    async def run() -> int:
        script: Script = {
            ApiKey.SASL_HANDSHAKE: lambda _: SaslHandshakeResponse(0, ("PLAIN",)),
            ApiKey.SASL_AUTHENTICATE: lambda _: SaslAuthenticateResponse(58, "wrong"),
        }
        async with scripted(script) as broker:
            made = cluster(
                broker.endpoint,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="PLAIN",
                sasl_username="alice",
                sasl_password="x",
            )
            with pytest.raises(AuthenticationFailed):
                await made.start()
            await made.close()
            return broker.connections

    assert asyncio.run(run()) == 1


def test_a_certificate_that_cannot_be_read_is_a_bad_setting(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    failure = failure_of(cluster("a:1", security_protocol="SSL", ssl_ca_location=missing))
    assert isinstance(failure, BadConfig)
    assert failure.key == "ssl.ca.location"


def test_an_http_server_is_not_asked_again() -> None:
    async def run() -> int:
        reply = b"HTTP/1.1 400 Bad Request\r\n\r\n"
        async with scripted({ApiKey.API_VERSIONS: lambda _: reply}) as broker:
            made = cluster(broker.endpoint)
            with pytest.raises(Unreachable, match="speaks HTTP"):
                await made.start()
            await made.close()
            return broker.connections

    assert asyncio.run(run()) == 1


def topic(name: str, leader: int = 1, error: int = 0) -> MetadataResponseTopic:
    partition = MetadataResponsePartition(0, 0, leader, 5)
    return MetadataResponseTopic(error, name, name.encode().ljust(16), False, (partition,))


def test_what_is_known_is_not_asked_again_until_it_is_old_wrong_or_doubted() -> None:
    async def run() -> None:
        known = {
            "good": topic("good"),
            "bad": topic("bad", error=ErrorCode.LEADER_NOT_AVAILABLE),
        }

        def answer(asked: Asked) -> Reply:
            assert isinstance(asked.message, MetadataRequest)
            names = [str(each.name) for each in asked.message.topics or ()]
            topics = tuple(known[name] for name in names)
            return MetadataResponse(brokers=one_broker(broker).brokers, topics=topics)

        async with scripted({ApiKey.METADATA: answer}) as broker:
            made = cluster(broker.endpoint)
            await made.start()

            async def asked(names: list[str], *, fresh: bool = False) -> int:
                before = broker.apis().count(ApiKey.METADATA)
                await made.topics(names, fresh=fresh)
                return broker.apis().count(ApiKey.METADATA) - before

            assert await asked(["good"]) == 1
            assert await asked(["good", "good"]) == 0
            assert await asked(["good"], fresh=True) == 1
            assert await asked(["good", "bad"]) == 1
            assert await asked(["bad"]) == 1
            await made.close()
            old = cluster(broker.endpoint, metadata_max_age_ms=1)
            await old.start()
            await old.topics(["good"])
            before = broker.apis().count(ApiKey.METADATA)
            while broker.apis().count(ApiKey.METADATA) == before:
                await old.topics(["good"])
            await old.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_broker_that_dies_is_replaced_by_another_that_is_known() -> None:
    async def run() -> None:
        def answer(_: Asked) -> Reply:
            brokers = (
                MetadataResponseBroker(1, first.endpoint.host, first.endpoint.port),
                MetadataResponseBroker(2, second.endpoint.host, second.endpoint.port),
            )
            return MetadataResponse(brokers=brokers)

        def hang_up(_: Asked) -> Reply:
            if first.apis().count(ApiKey.METADATA) > 1:
                raise HangUp
            return answer(_)

        async with (
            scripted({ApiKey.METADATA: hang_up}) as first,
            scripted({ApiKey.METADATA: answer}) as second,
        ):
            made = cluster(first.endpoint)
            await made.start()
            assert set(made.brokers) == {1, 2}
            for _ in range(20):
                await made.topics([], fresh=True)
            assert (await made.any_connection()).endpoint == second.endpoint
            await made.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_when_all_known_brokers_are_gone_the_bootstrap_servers_are_asked_again() -> None:
    async def run() -> None:
        (gone,) = free_ports(1)
        replies = iter([MetadataResponseBroker(1, "127.0.0.1", gone)])

        def answer(_: Asked) -> Reply:
            brokers = (next(replies, one_broker(broker).brokers[0]),)
            if broker.apis().count(ApiKey.METADATA) == 2:
                raise HangUp
            return MetadataResponse(brokers=brokers)

        async with scripted({ApiKey.METADATA: answer}) as broker:
            made = cluster(broker.endpoint)
            await made.start()
            assert made.brokers == {1: BrokerAddress("127.0.0.1", gone)}
            with pytest.raises(Unreachable, match="nobody answers"):
                await made.connection(1)
            await made.topics([], fresh=True)
            assert made.brokers == {1: broker.endpoint}
            await made.connection(1)
            with pytest.raises(Unreachable, match="no broker 9"):
                await made.connection(9)
            await made.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_broker_that_asks_to_begin_again_is_obeyed() -> None:
    async def run() -> int:
        def answer(_: Asked) -> Reply:
            if broker.apis().count(ApiKey.METADATA) == 2:
                return MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
            return one_broker(broker)

        async with scripted({ApiKey.METADATA: answer}) as broker:
            made = cluster(broker.endpoint)
            await made.start()
            await made.topics([], fresh=True)
            assert made.brokers == {1: broker.endpoint}
            await made.close()
            return broker.connections

    assert asyncio.run(run()) == 2


def coordinator_at(endpoint: BrokerAddress, code: int = 0) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=(Coordinator("g", 1, endpoint.host, endpoint.port, code, None),)
    )


def test_a_coordinator_that_is_not_there_yet_is_waited_for() -> None:
    async def run() -> None:
        def find(_: Asked) -> Reply:
            count = broker.apis().count(ApiKey.FIND_COORDINATOR)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if count < 3 else 0
            return coordinator_at(broker.endpoint, code)

        async with scripted({ApiKey.FIND_COORDINATOR: find}) as broker:
            made = cluster(broker.endpoint)
            await made.start()
            first = await made.coordinator("g")
            assert first is await made.coordinator("g")
            assert broker.apis().count(ApiKey.FIND_COORDINATOR) == 3
            made.forget_coordinator("g")
            await made.coordinator("g")
            assert broker.apis().count(ApiKey.FIND_COORDINATOR) == 4
            await made.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_group_that_may_not_be_asked_for_is_a_broker_error() -> None:
    async def run() -> None:
        def find(_: Asked) -> Reply:
            return coordinator_at(broker.endpoint, ErrorCode.GROUP_AUTHORIZATION_FAILED)

        async with scripted({ApiKey.FIND_COORDINATOR: find}) as broker:
            made = cluster(broker.endpoint)
            await made.start()
            with pytest.raises(BrokerError, match="'g': GROUP_AUTHORIZATION_FAILED"):
                await made.coordinator("g")
            await made.close()

    asyncio.run(run())


def test_a_coordinator_that_does_not_answer_is_looked_for_again() -> None:
    async def run() -> None:
        (gone,) = free_ports(1)

        def find(_: Asked) -> Reply:
            first = broker.apis().count(ApiKey.FIND_COORDINATOR) == 1
            return coordinator_at(BrokerAddress("127.0.0.1", gone) if first else broker.endpoint)

        async with scripted({ApiKey.FIND_COORDINATOR: find}) as broker:
            made = cluster(broker.endpoint)
            await made.start()
            assert (await made.coordinator("g")).endpoint == broker.endpoint
            await made.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_broker_that_hangs_is_given_up_within_the_time_limit() -> None:
    async def run() -> None:
        async with scripted({ApiKey.DESCRIBE_CLUSTER: lambda _: None}) as broker:
            made = cluster(broker.endpoint)
            await made.start()
            with pytest.raises(TimedOut, match="has not answered DescribeCluster"):
                await made.call_any(
                    DescribeClusterRequest(), DescribeClusterResponse, timeout_s=0.05
                )
            await made.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_closing_tells_all_who_wait_and_leaves_nothing_open() -> None:
    async def run() -> None:
        async with scripted({ApiKey.DESCRIBE_CLUSTER: lambda _: None}) as broker:
            made = cluster(broker.endpoint)
            await made.start()
            await made.connection(1)
            waiting = asyncio.create_task(
                made.call_any(DescribeClusterRequest(), DescribeClusterResponse)
            )
            while ApiKey.DESCRIBE_CLUSTER not in set(broker.apis()):
                await asyncio.sleep(0)
            await made.close()
            await made.close()
            with pytest.raises(Closed):
                await waiting
            for work in (made.any_connection(), made.connection(1), made.topics(["x"])):
                with pytest.raises(Closed):
                    await work
            while broker.open:
                await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_cluster_that_never_started_can_be_closed() -> None:
    asyncio.run(cluster("a:1").close())
