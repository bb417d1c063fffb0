"""What discovery is told: which group, which topics, and what this node is. Pure.

Rules: a configuration can be made from any values, so that a caller may build it up; `validate`
says what is wrong with it as a `ConfigError` that names the field, and everything that uses a
configuration calls it first. Times are seconds, or a `timedelta`. A password is never shown.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from lakelog.discovery.failures import ConfigError
from lakelog.discovery.node import (
    NodeInfo,
    NodeMetadata,
    NodeState,
    check_metadata,
    is_legal_node_id,
    make_node_id,
)

ASSIGNOR_NAME: Final = "laminar-range"
"""The one assignor there is."""

SECONDS_MAX: Final = 86_400.0
GROUP_ID_CHARACTERS_MAX: Final = 249

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LEGAL_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+(?:%[\w.-]+)?\]|[^\s:\[\]/@]+):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class KafkaSecurityConfig:
    """How to reach a cluster that asks who one is, or that encrypts."""

    protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)

    def validate(self) -> None:
        """Raise ConfigError if the fields do not go together."""
        _require(
            self.protocol in _PROTOCOLS, f"security.protocol must be one of {', '.join(_PROTOCOLS)}"
        )
        sasl = (self.sasl_mechanism, self.sasl_username, self.sasl_password)
        if self.protocol.startswith("SASL_"):
            _require(
                self.sasl_mechanism in _MECHANISMS,
                f"security.sasl_mechanism must be one of {', '.join(_MECHANISMS)}",
            )
            _require(
                bool(self.sasl_username) and self.sasl_password is not None,
                f"{self.protocol} requires security.sasl_username and security.sasl_password",
            )
        else:
            _require(not any(sasl), f"security.sasl_* has no meaning with protocol {self.protocol}")
        tls = (self.ssl_ca_location, self.ssl_certificate_location, self.ssl_key_location)
        _require(
            self.protocol.endswith("SSL") or not any(tls),
            f"security.ssl_* has no meaning with protocol {self.protocol}",
        )
        _require(
            self.ssl_key_location is None or self.ssl_certificate_location is not None,
            "security.ssl_key_location requires security.ssl_certificate_location",
        )

    def client_config(self) -> dict[str, object]:
        """The same by librdkafka's names, without what is not given."""
        named = {
            "security.protocol": self.protocol,
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.username": self.sasl_username,
            "sasl.password": self.sasl_password,
            "ssl.ca.location": self.ssl_ca_location,
            "ssl.certificate.location": self.ssl_certificate_location,
            "ssl.key.location": self.ssl_key_location,
            "ssl.key.password": self.ssl_key_password,
        }
        return {key: value for key, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class KafkaDiscoveryConfig:
    """Everything a node needs to find the others through a Kafka group."""

    node_id: str | int = "0"
    """Unique in the group; it is the `group.instance.id`."""
    bootstrap_servers: str = "localhost:9092"
    """Brokers, separated by commas."""
    group_id: str = "laminar-delta"
    topics: Sequence[str] = ()
    """Their order numbers the partitions: it must be the same on all nodes."""
    session_timeout: float | timedelta = 30.0
    heartbeat_interval: float | timedelta = 3.0
    max_poll_interval: float | timedelta = 300.0
    rpc_address: str = "127.0.0.1:9100"
    raft_address: str = "127.0.0.1:9200"
    metadata: NodeMetadata = field(default_factory=NodeMetadata)
    partition_assignor: str = ASSIGNOR_NAME
    security: KafkaSecurityConfig | None = None
    client: Mapping[str, object] = field(default_factory=dict, repr=False, hash=False)
    """More settings of the Kafka client, by librdkafka's names; other fields come first."""

    def __post_init__(self) -> None:
        if isinstance(self.node_id, int) and not isinstance(self.node_id, bool):
            object.__setattr__(self, "node_id", str(self.node_id))
        object.__setattr__(self, "topics", _without_list(self.topics))
        for name in ("session_timeout", "heartbeat_interval", "max_poll_interval"):
            given = getattr(self, name)
            if isinstance(given, timedelta):
                object.__setattr__(self, name, given.total_seconds())

    @property
    def session_timeout_ms(self) -> int:
        """How long the coordinator waits for a heartbeat."""
        return _milliseconds(self.session_timeout)

    @property
    def heartbeat_interval_ms(self) -> int:
        """How often a heartbeat is sent."""
        return _milliseconds(self.heartbeat_interval)

    @property
    def max_poll_interval_ms(self) -> int:
        """How long a callback may run, and the group waits for this node in a rebalance."""
        return _milliseconds(self.max_poll_interval)

    @property
    def node(self) -> NodeInfo:
        """This node as the others will see it."""
        return NodeInfo(
            node_id=make_node_id(self.node_id),
            rpc_address=self.rpc_address,
            raft_address=self.raft_address,
            metadata=self.metadata,
            state=NodeState.JOINING,
        )

    def validate(self) -> None:
        """Raise ConfigError for the first field that cannot work."""
        _check_names(self)
        _check_topics(self.topics)
        _check_times(self)
        _check_address(self.rpc_address, "rpc_address")
        _check_address(self.raft_address, "raft_address")
        _require(isinstance(self.metadata, NodeMetadata), "metadata must be a NodeMetadata")
        check_metadata(self.metadata)
        _require(
            self.partition_assignor == ASSIGNOR_NAME,
            f"partition_assignor must be {ASSIGNOR_NAME!r}, not {self.partition_assignor!r}",
        )
        if self.security is not None:
            self.security.validate()

    def client_config(self) -> dict[str, object]:
        """The configuration of the client beneath, by librdkafka's names."""
        named: dict[str, object] = {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": f"lakelog-discovery-{self.node_id}",
            "group.id": self.group_id,
            "group.instance.id": str(self.node_id),
            "session.timeout.ms": self.session_timeout_ms,
            "heartbeat.interval.ms": self.heartbeat_interval_ms,
            "max.poll.interval.ms": self.max_poll_interval_ms,
        }
        if self.metadata.failure_domain:
            named["client.rack"] = self.metadata.failure_domain
        secured = self.security.client_config() if self.security is not None else {}
        return {**self.client, **named, **secured}


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise ConfigError(reason)


def _check_names(config: KafkaDiscoveryConfig) -> None:
    _require(
        isinstance(config.node_id, str) and is_legal_node_id(config.node_id),
        f"node_id must be 1 to 249 of a-z, A-Z, 0-9, '.', '_', '-', not {config.node_id!r}",
    )
    servers = config.bootstrap_servers
    _require(_is_text(servers), "kafka discovery requires bootstrap servers")
    for server in servers.split(","):
        _require(
            _ADDRESS.fullmatch(server.strip().rpartition("://")[2]) is not None,
            f"bootstrap_servers must be host:port, separated by commas, not {server.strip()!r}",
        )
    _require(
        _is_text(config.group_id) and len(config.group_id) <= GROUP_ID_CHARACTERS_MAX,
        f"group_id must be 1 to {GROUP_ID_CHARACTERS_MAX} characters",
    )


def _check_topics(topics: Sequence[str]) -> None:
    _require(isinstance(topics, tuple), f"topics must be a list of names, not {topics!r}")
    _require(bool(topics), "kafka discovery requires at least one topic")
    for topic in topics:
        _require(
            _is_text(topic)
            and _LEGAL_TOPIC.fullmatch(topic) is not None
            and topic not in (".", ".."),
            f"topics: {topic!r} is no legal name of a topic",
        )
    twice = sorted(topic for topic in set(topics) if topics.count(topic) > 1)
    _require(not twice, f"topics: {', '.join(twice)} given more than once")


def _check_times(config: KafkaDiscoveryConfig) -> None:
    for name in ("session_timeout", "heartbeat_interval", "max_poll_interval"):
        given = getattr(config, name)
        _require(
            isinstance(given, int | float)
            and not isinstance(given, bool)
            and math.isfinite(given)
            and 0.001 <= given <= SECONDS_MAX,
            f"{name} must be seconds from 0.001 to {SECONDS_MAX:.0f}, not {given!r}",
        )
    _require(
        3 * config.heartbeat_interval_ms < config.session_timeout_ms,
        "heartbeat_interval must be less than session_timeout / 3",
    )


def _check_address(address: str, name: str) -> None:
    found = _ADDRESS.fullmatch(address) if _is_text(address) else None
    _require(
        found is not None and 0 < int(found[2]) < 65_536,
        f"{name} must be host:port, not {address!r}",
    )


def _without_list(given: object) -> object:
    """A tuple for a list; everything else as it is, for validation to judge."""
    return tuple(given) if isinstance(given, list) else given


def _is_text(given: object) -> bool:
    """Whether it is a text that says something: callers without a type checker give anything."""
    return isinstance(given, str) and bool(given.strip())


def _milliseconds(seconds: float | timedelta) -> int:
    given = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    return round(given * 1000)
