"""TLS and SASL against a real Apache Kafka, on every kind of listener it has."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.client.feeding import FIRST_MS, Fed, create_topic, feed
from tests.kafka_client.certificates import KEY_PASSWORD
from tests.kafka_client.secured_kafka import (
    LISTENERS,
    MECHANISMS,
    REAUTHENTICATION_MS,
    SecuredKafka,
)

from lakelog.client import ConsumerManager, SourceTopic
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.failures import (
    AuthenticationFailed,
    ClientFailure,
    Unreachable,
    Untrusted,
)
from lakelog.kafka_client.loop_thread import LoopThread
from lakelog.kafka_client.settings import ClientSettings
from lakelog.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from lakelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

pytestmark = pytest.mark.proof
TLS = [name for name, protocol in LISTENERS.items() if protocol.endswith("SSL")]


@pytest.fixture
def kafka(secured_apache_kafka: SecuredKafka) -> SecuredKafka:
    return secured_apache_kafka


@pytest.fixture(scope="module")
def thread() -> Iterator[LoopThread]:
    with LoopThread("secured") as running:
        yield running


ONE_ATTEMPT: dict[str, object] = {
    "default.api.timeout.ms": 30_000,
    "retry.backoff.ms": 60_000,
    "retry.backoff.max.ms": 60_000,
}
"""There is no time for a second attempt, and any machine has the time for a first one."""


def cluster(config: dict[str, object]) -> KafkaCluster:
    settings = ClientSettings.parse({"default.api.timeout.ms": 15_000, **config})
    return KafkaCluster(settings, clock=SystemClock(), entropy=SystemEntropy())


async def converse(config: dict[str, object]) -> None:
    """Use all three kinds of connections."""
    made = cluster(config)
    try:
        await made.start()
        (node_id,) = made.brokers
        leader = await made.connection(node_id)
        await leader.call(DescribeClusterRequest(), DescribeClusterResponse)
        coordinator = await made.coordinator("group")
        answer = await coordinator.call(DescribeGroupsRequest(("group",)), DescribeGroupsResponse)
        assert answer.groups[0].group_id == "group"
    finally:
        await made.close()


def failure(thread: LoopThread, config: dict[str, object]) -> ClientFailure:
    async def start() -> None:
        made = cluster(config)
        try:
            await made.start()
        finally:
            await made.close()

    with pytest.raises(ClientFailure) as found:
        thread.run(start(), timeout_s=40)
    return found.value


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [
        ("PLAINTEXT", "PLAIN"),
        ("SSL", "PLAIN"),
        *(("SASL_PLAINTEXT", mechanism) for mechanism in MECHANISMS),
        *(("SASL_SSL", mechanism) for mechanism in MECHANISMS),
    ],
)
def test_every_listener_and_mechanism_is_spoken(
    kafka: SecuredKafka, thread: LoopThread, listener: str, mechanism: str
) -> None:
    thread.run(converse(kafka.config(listener, mechanism)), timeout_s=40)


def test_the_standard_loop_speaks_tls_and_scram_too(kafka: SecuredKafka) -> None:
    asyncio.run(converse(kafka.config("SASL_SSL", "SCRAM-SHA-512")))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("wrong", ["sasl.username", "sasl.password"])
def test_wrong_credentials_are_refused_at_once(
    kafka: SecuredKafka, thread: LoopThread, mechanism: str, wrong: str
) -> None:
    found = failure(thread, {**kafka.config("SASL_SSL", mechanism), wrong: "x,=\u00fc"})
    assert isinstance(found, AuthenticationFailed)
    assert mechanism in str(found)


def test_a_mechanism_that_is_not_offered_names_the_one_that_is(
    kafka: SecuredKafka, thread: LoopThread
) -> None:
    found = failure(thread, kafka.config("SCRAM_ONLY", "PLAIN"))
    assert isinstance(found, AuthenticationFailed)
    assert "it offers: SCRAM-SHA-512" in str(found)


def test_a_listener_that_wants_a_certificate_gets_ours(
    kafka: SecuredKafka, thread: LoopThread
) -> None:
    found = failure(thread, kafka.config("MUTUAL"))
    assert isinstance(found, Untrusted)
    assert "ssl.certificate.location" in str(found)
    own: dict[str, object] = {
        "ssl.certificate.location": str(kafka.certificates.client),
        "ssl.key.location": str(kafka.certificates.client_locked_key),
        "ssl.key.password": KEY_PASSWORD,
    }
    thread.run(converse({**kafka.config("MUTUAL"), **own}), timeout_s=40)


def test_a_broker_that_is_not_trusted_or_not_who_it_says_is_left(
    kafka: SecuredKafka, thread: LoopThread
) -> None:
    stranger: dict[str, object] = {"ssl.ca.location": str(kafka.certificates.stranger)}
    found = failure(thread, {**kafka.config("SSL"), **stranger})
    assert isinstance(found, Untrusted)
    found = failure(thread, kafka.config("MISNAMED"))
    assert isinstance(found, Untrusted)
    assert "127.0.0.1" in str(found)
    lenient: dict[str, object] = {"ssl.endpoint.identification.algorithm": "none"}
    thread.run(converse({**kafka.config("MISNAMED"), **lenient}), timeout_s=40)


@pytest.mark.parametrize("listener", TLS)
def test_a_tls_listener_spoken_to_in_plain_text_is_said_so(
    kafka: SecuredKafka, thread: LoopThread, listener: str
) -> None:
    found = failure(thread, {"bootstrap.servers": kafka.server(listener)})
    assert isinstance(found, Unreachable)
    assert "set security.protocol to SSL or SASL_SSL" in str(found)


@pytest.mark.parametrize(
    ("spoken", "listener", "said"),
    [
        ("PLAINTEXT", "SASL_PLAINTEXT", "does it ask for credentials"),
        ("SSL", "SASL_SSL", "does it ask for credentials"),
        ("SSL", "PLAINTEXT", "security.protocol"),
    ],
)
def test_another_protocol_than_the_listeners_is_said_within_the_time_limit(
    kafka: SecuredKafka, thread: LoopThread, spoken: str, listener: str, said: str
) -> None:
    config = {**kafka.config(spoken), "bootstrap.servers": kafka.server(listener), **ONE_ATTEMPT}
    found = failure(thread, config)
    assert isinstance(found, Unreachable)
    assert said in str(found)


def test_a_listener_without_sasl_takes_no_credentials(
    kafka: SecuredKafka, thread: LoopThread
) -> None:
    config = {**kafka.config("SASL_PLAINTEXT"), "bootstrap.servers": kafka.plaintext}
    found = failure(thread, config)
    assert isinstance(found, AuthenticationFailed)
    assert "is security.protocol right?" in str(found)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_session_outlives_its_first_life_on_the_same_connection(
    kafka: SecuredKafka, thread: LoopThread, mechanism: str
) -> None:
    """A broker ends the connection of a session that is over at its next request."""

    async def stay() -> int:
        made = cluster(kafka.config("RENEWED", mechanism))
        loop = asyncio.get_running_loop()
        try:
            await made.start()
            (node_id,) = made.brokers
            connection = await made.connection(node_id)
            end_s = loop.time() + 2.5 * REAUTHENTICATION_MS / 1000
            calls = 0
            while loop.time() < end_s:
                futures = [
                    connection.send(DescribeClusterRequest(), DescribeClusterResponse)
                    for _ in range(5)
                ]
                await asyncio.gather(*futures)
                calls += 5
                assert not await connection.wait_lost(0.01)
            return connection.requests_sent - calls
        finally:
            await made.close()

    others = thread.run(stay(), timeout_s=40)
    steps = 2 if mechanism == "PLAIN" else 3  # the handshake and the messages
    assert others >= 1 + 3 * steps  # ApiVersions, then at least three times the credentials


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_consumer_reads_in_order_over_sasl_ssl(kafka: SecuredKafka, mechanism: str) -> None:
    topic = f"read-{mechanism}"
    create_topic(kafka.plaintext, topic, 3)
    feed(kafka.plaintext, topic, [Fed(at % 3, FIRST_MS + at, b"%d" % at) for at in range(3_000)])
    config = {**kafka.config("SASL_SSL", mechanism), "group.id": topic}
    with ConsumerManager(config, [SourceTopic.from_earliest(topic)]) as manager:
        values = [value for batch in manager.priming() for value in batch["value"].to_pylist()]
        assert manager.commit() == {(topic, partition): 1_000 for partition in range(3)}
    assert values == [b"%d" % at for at in range(3_000)]
