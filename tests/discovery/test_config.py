"""The configuration: defaults, validation, and the client's configuration made from it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lakelog.discovery.config import KafkaDiscoveryConfig, KafkaSecurityConfig
from lakelog.discovery.failures import ConfigError, DiscoveryError
from lakelog.discovery.node import NodeMetadata
from lakelog.kafka_client.settings import ClientSettings

GOOD = KafkaDiscoveryConfig(node_id="a", topics=["orders"])


def test_kafka_config_default() -> None:
    config = KafkaDiscoveryConfig()
    assert config.node_id == "0"
    assert config.bootstrap_servers == "localhost:9092"
    assert config.group_id == "laminar-delta"
    assert config.topics == ()
    assert (config.session_timeout, config.heartbeat_interval) == (30.0, 3.0)
    assert config.max_poll_interval == 300.0
    assert (config.rpc_address, config.raft_address) == ("127.0.0.1:9100", "127.0.0.1:9200")
    assert config.metadata == NodeMetadata(cores=1)
    assert config.partition_assignor == "laminar-range"
    assert config.security is None
    replace(config, topics=("orders",)).validate()


def test_kafka_config_empty_topics_error() -> None:
    with pytest.raises(ConfigError, match="kafka discovery requires at least one topic"):
        KafkaDiscoveryConfig().validate()


@pytest.mark.parametrize("servers", ["", "  "])
def test_kafka_config_empty_bootstrap_error(servers: str) -> None:
    with pytest.raises(ConfigError, match="kafka discovery requires bootstrap servers"):
        replace(GOOD, bootstrap_servers=servers).validate()


def test_times_are_seconds_or_timedeltas() -> None:
    config = replace(GOOD, session_timeout=timedelta(seconds=6), heartbeat_interval=0.5)
    config.validate()
    assert (config.session_timeout_ms, config.heartbeat_interval_ms) == (6000, 500)
    assert config == replace(
        GOOD, session_timeout=6.0, heartbeat_interval=timedelta(milliseconds=500)
    )


def test_a_number_is_a_node_id_and_a_list_of_topics_is_taken_as_a_tuple() -> None:
    config = KafkaDiscoveryConfig(node_id=7, topics=["b", "a"])
    config.validate()
    assert (config.node_id, config.topics) == ("7", ("b", "a"))
    assert config.node.node_id == "7"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("node_id", "", "node_id"),
        ("node_id", "a b", "node_id"),
        ("node_id", "..", "node_id"),
        ("node_id", "x" * 250, "node_id"),
        ("node_id", True, "node_id"),
        ("node_id", None, "node_id"),
        ("bootstrap_servers", "nohost", "bootstrap_servers must be host:port"),
        ("bootstrap_servers", "a:1,,b:2", "bootstrap_servers must be host:port"),
        ("group_id", " ", "group_id"),
        ("group_id", "g" * 250, "group_id"),
        ("topics", "orders", "topics must be a list of names, not 'orders'"),
        ("topics", None, "topics must be a list"),
        ("topics", ["a", "b", "a"], "a given more than once"),
        ("topics", ["a/b"], "'a/b' is no legal name"),
        ("topics", [5], "5 is no legal name"),
        ("session_timeout", 9.0, "heartbeat_interval must be less than session_timeout / 3"),
        ("session_timeout", "30s", "session_timeout must be seconds"),
        ("heartbeat_interval", 0, "heartbeat_interval must be seconds"),
        ("heartbeat_interval", -1.0, "heartbeat_interval must be seconds"),
        ("max_poll_interval", float("nan"), "max_poll_interval must be seconds"),
        ("max_poll_interval", 1e9, "max_poll_interval must be seconds"),
        ("rpc_address", "localhost", "rpc_address must be host:port"),
        ("rpc_address", "localhost:0", "rpc_address must be host:port"),
        ("raft_address", "localhost:99999", "raft_address must be host:port"),
        ("raft_address", None, "raft_address must be host:port"),
        ("metadata", None, "metadata must be a NodeMetadata"),
        ("metadata", NodeMetadata(cores=0), "metadata.cores"),
        ("metadata", NodeMetadata(failure_domain=""), "metadata.failure_domain"),
        ("metadata", NodeMetadata(tags={"a": "\ud800"}), "metadata.tags"),
        ("partition_assignor", "range", "partition_assignor must be 'laminar-range'"),
    ],
)
def test_a_field_that_cannot_work_is_named(field: str, value: object, said: str) -> None:
    config = KafkaDiscoveryConfig(**{"node_id": "a", "topics": ["orders"], field: value})  # type: ignore[arg-type]  # any value
    with pytest.raises(ConfigError, match=said.replace("[", r"\[")) as caught:
        config.validate()
    assert isinstance(caught.value, DiscoveryError)
    assert caught.value.is_fatal


def test_a_heartbeat_of_exactly_a_third_is_too_slow() -> None:
    with pytest.raises(ConfigError, match="less than session_timeout / 3"):
        replace(GOOD, session_timeout=9, heartbeat_interval=3).validate()
    replace(GOOD, session_timeout=9.003, heartbeat_interval=3).validate()


@pytest.mark.parametrize(
    "address", ["127.0.0.1:9100", "node-1.example.com:1", "[::1]:9100", "[fe80::1%eth0]:65535"]
)
def test_addresses_are_host_and_port(address: str) -> None:
    config = replace(GOOD, rpc_address=address, raft_address=address)
    config.validate()
    assert (config.node.rpc_address, config.node.raft_address) == (address, address)


@pytest.mark.parametrize(
    ("security", "said"),
    [
        (KafkaSecurityConfig(protocol="TLS"), "security.protocol must be one of PLAINTEXT, SSL"),
        (KafkaSecurityConfig(protocol="SASL_SSL"), "security.sasl_mechanism must be one of PLAIN"),
        (
            KafkaSecurityConfig(protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="u"),
            "SASL_SSL requires security.sasl_username and security.sasl_password",
        ),
        (
            KafkaSecurityConfig(protocol="SASL_SSL", sasl_mechanism="GSSAPI"),
            "security.sasl_mechanism must be one of",
        ),
        (KafkaSecurityConfig(protocol="SSL", sasl_username="u"), "sasl_\\* has no meaning"),
        (KafkaSecurityConfig(ssl_ca_location="/ca.pem"), "ssl_\\* has no meaning"),
        (
            KafkaSecurityConfig(protocol="SSL", ssl_key_location="/key.pem"),
            "ssl_key_location requires security.ssl_certificate_location",
        ),
    ],
)
def test_security_fields_must_go_together(security: KafkaSecurityConfig, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        replace(GOOD, security=security).validate()


SECURE = KafkaSecurityConfig(
    protocol="SASL_SSL",
    sasl_mechanism="SCRAM-SHA-512",
    sasl_username="node",
    sasl_password="do not show",
    ssl_ca_location="/etc/ca.pem",
)


def test_a_password_is_never_shown() -> None:
    assert "do not show" not in repr(replace(GOOD, security=SECURE))


def test_the_client_beneath_is_configured_by_the_names_it_knows() -> None:
    domain = NodeMetadata(failure_domain="zone-1")
    config = replace(GOOD, security=SECURE, metadata=domain).client_config()
    assert config["security.protocol"] == "SASL_SSL"
    assert config["sasl.password"] == "do not show"
    assert config["client.rack"] == "zone-1"
    assert "ssl.key.location" not in config
    plain = ClientSettings.parse(GOOD.client_config())
    assert plain.group_instance_id == "a"
    assert plain.session_timeout_ms == 30_000
    assert plain.ignored == ()


def test_more_settings_of_the_client_come_after_the_other_fields() -> None:
    more = {"ssl.ca.pem": "PEM", "group.id": "other", "sasl.password": "do not show"}
    made = replace(GOOD, client=more)
    assert made.client_config()["ssl.ca.pem"] == "PEM"
    assert made.client_config()["group.id"] == GOOD.group_id
    assert "do not show" not in repr(made)
