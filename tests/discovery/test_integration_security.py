"""Discovery on a cluster that encrypts and asks who one is: SASL_SSL against a real Kafka."""

import threading
from dataclasses import replace
from typing import Any

import pytest
from tests.discovery.nodes import await_agreement, configured
from tests.discovery.stands import Stand
from tests.kafka_client.secured_kafka import MECHANISMS, PASSWORD, USERNAME, SecuredKafka

from lakelog.discovery import (
    ConnectionFailed,
    KafkaDiscovery,
    KafkaDiscoveryConfig,
    KafkaSecurityConfig,
    SecurityError,
)

pytestmark = pytest.mark.proof

WAIT_S_MAX = 30.0
SESSION_S = 6.0


@pytest.fixture(scope="module")
def kafka(secured_apache_kafka: SecuredKafka) -> SecuredKafka:
    Stand("secured", secured_apache_kafka.plaintext).create(secret=6)
    return secured_apache_kafka


def config(kafka: SecuredKafka, node_id: str, mechanism: str) -> KafkaDiscoveryConfig:
    security = KafkaSecurityConfig(
        protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_username=USERNAME,
        sasl_password=PASSWORD,
        ssl_ca_location=str(kafka.certificates.ca),
    )
    stand = Stand("secured", kafka.server("SASL_SSL"))
    group = f"secured-{mechanism}"
    more = {"session_timeout": SESSION_S, "security": security}
    return configured(stand, node_id, group, ["secret"], **more)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_security_sasl_ssl_nodes_join_and_share(kafka: SecuredKafka, mechanism: str) -> None:
    with (
        KafkaDiscovery(config(kafka, "a", mechanism)) as first,
        KafkaDiscovery(config(kafka, "b", mechanism)) as second,
    ):
        await_agreement([first, second], 6)


def refused(kafka: SecuredKafka, **changed: Any) -> SecurityError:
    good = config(kafka, "a", "PLAIN")
    assert good.security is not None
    node = KafkaDiscovery(replace(good, security=replace(good.security, **changed)))
    with pytest.raises(SecurityError) as caught:
        node.start(WAIT_S_MAX)
    assert not [each for each in threading.enumerate() if each.name.startswith("lakelog-d")]
    return caught.value


def test_wrong_credentials_are_refused_at_once_and_never_shown(kafka: SecuredKafka) -> None:
    failure = refused(kafka, sasl_password="not-the-password")
    assert "not-the-password" not in str(failure)


def test_a_certificate_that_nobody_vouches_for_is_refused(kafka: SecuredKafka) -> None:
    refused(kafka, ssl_ca_location=None)


def test_speaking_plaintext_to_a_tls_listener_is_a_clear_error(kafka: SecuredKafka) -> None:
    stand = Stand("secured", kafka.server("SASL_SSL"))
    node = KafkaDiscovery(configured(stand, "a", "g", ["secret"]))
    with pytest.raises(ConnectionFailed, match=r"security\.protocol"):
        node.start(2.0)
