"""The keys of a client's configuration by librdkafka's names, and how each value is read. Pure.

Three kinds: keys with a meaning here, keys that librdkafka knows and that change nothing here (they
are accepted, so that a configuration can be shared), and keys that would promise security that is
not given (they are refused).

Values come as librdkafka's bindings take them: a text, a number or a boolean, each also as text. A
reader raises ValueError with the reason; who calls it adds the key. Addresses are read as users and
brokers write them.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

PORT_DEFAULT: Final = 9092
PORT_MAX: Final = 65_535
_WRITTEN: Final = re.compile(
    r"(?:\w+://)?(?:\[(?P<bracketed>[^\s/@\[\]]+)\]|(?P<host>[^\s/@\[\]:]+))(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True, order=True)
class BrokerAddress:
    """A host, by name or by number, and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "BrokerAddress":
        """Read `host:port`, `host` (port 9092), `[::1]:port` or `PROTOCOL://host:port`."""
        found = _WRITTEN.fullmatch(text.strip())
        port = int(found["port"] or PORT_DEFAULT) if found is not None else 0
        if found is None or not 0 < port <= PORT_MAX:
            raise ValueError(f"{text!r} is no address; write host:port, or [::1]:port")
        return cls(found["bracketed"] or found["host"], port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Value: TypeAlias = str | int | bool | tuple[BrokerAddress, ...]
"""What a reader gives."""

Reader: TypeAlias = Callable[[object], Value]
"""Makes a value of what was written."""

TRUE: Final = frozenset({"true", "t", "1", "yes", "on"})
FALSE: Final = frozenset({"false", "f", "0", "no", "off"})
INT32_MAX: Final = 2**31 - 1
SHOWN_MAX: Final = 60


def text(written: object) -> str:
    """A text as it stands."""
    if isinstance(written, bytes):
        written = written.decode("utf-8")
    if not isinstance(written, str):
        raise ValueError(f"needs a text, not {shown(written)}")  # noqa: TRY004 - one kind of failure
    return written


def secret(written: object) -> str:
    """A text that is never repeated, whatever is wrong with it."""
    if not isinstance(written, str):
        raise ValueError("needs a text")  # noqa: TRY004 - one kind of failure
    return written


def boolean(written: object) -> bool:
    """True or false, or a word for it."""
    word = str(written).strip().lower() if isinstance(written, str | int) else ""
    if word not in TRUE | FALSE:
        raise ValueError(f"needs true or false, not {shown(written)}")
    return word in TRUE


def number(least: int, most: int = INT32_MAX) -> Reader:
    """A reader of whole numbers in [least, most]."""

    def read(written: object) -> int:
        whole = _whole(written)
        if not least <= whole <= most:
            raise ValueError(f"is {whole}, but must be in {least} to {most}")
        return whole

    return read


def choice(options: dict[str, str]) -> Reader:
    """A reader of words, whatever their case: what may be written, and what it means."""

    def read(written: object) -> str:
        found = options.get(text(written).strip().lower())
        if found is None:
            known = ", ".join(sorted(set(options)))
            raise ValueError(f"is {shown(written)}, but must be one of: {known}")
        return found

    return read


def endpoints(written: object) -> tuple[BrokerAddress, ...]:
    """Addresses with commas between them, or a sequence of addresses; each of them once."""
    if isinstance(written, Sequence) and not isinstance(written, str | bytes):
        parts = [text(part) for part in written]
    else:
        parts = text(written).split(",")
    found = tuple(dict.fromkeys(BrokerAddress.parse(part) for part in parts if part.strip()))
    if not found:
        raise ValueError("is empty, but needs at least one host:port")
    return found


def shown(written: object) -> str:
    """What was written, short enough for a message."""
    whole = repr(written)
    return whole if len(whole) <= SHOWN_MAX else f"{whole[:SHOWN_MAX]}..."


def _whole(written: object) -> int:
    if isinstance(written, float) and written.is_integer():
        return int(written)
    if isinstance(written, int) and not isinstance(written, bool):
        return written
    if isinstance(written, str) and len(written) <= 20:  # longer is no number that counts anything
        try:
            return int(written)
        except ValueError:
            pass
    raise ValueError(f"needs a whole number, not {shown(written)}")


PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
DAY_MS: Final = 86_400_000

KEYS: Final[dict[str, Reader]] = {
    "bootstrap.servers": endpoints,
    "client.id": text,
    "client.rack": text,
    "security.protocol": choice({name.lower(): name for name in PROTOCOLS}),
    "sasl.mechanism": choice({name.lower(): name for name in MECHANISMS}),
    "sasl.username": text,
    "sasl.password": secret,
    "ssl.ca.location": text,
    "ssl.ca.pem": text,
    "ssl.certificate.location": text,
    "ssl.certificate.pem": text,
    "ssl.key.location": text,
    "ssl.key.pem": secret,
    "ssl.key.password": secret,
    "ssl.endpoint.identification.algorithm": choice({"https": "https", "none": "none", "": "none"}),
    "enable.ssl.certificate.verification": boolean,
    "socket.timeout.ms": number(10, 300_000),
    "socket.connection.setup.timeout.ms": number(10),
    "socket.receive.buffer.bytes": number(0, 100_000_000),
    "socket.keepalive.enable": boolean,
    "receive.message.max.bytes": number(1000),
    "reconnect.backoff.ms": number(0, 3_600_000),
    "reconnect.backoff.max.ms": number(0, 3_600_000),
    "retry.backoff.ms": number(1, 300_000),
    "retry.backoff.max.ms": number(1, 300_000),
    "metadata.max.age.ms": number(1, DAY_MS),
    "default.api.timeout.ms": number(1),
    "fetch.min.bytes": number(1, 100_000_000),
    "fetch.wait.max.ms": number(0, 300_000),
    "fetch.max.bytes": number(1, 2_147_483_135),
    "max.partition.fetch.bytes": number(1, 1_000_000_000),
    "isolation.level": choice(
        {"read_committed": "read_committed", "read_uncommitted": "read_uncommitted"}
    ),
    "check.crcs": boolean,
    "allow.auto.create.topics": boolean,
    "auto.offset.reset": choice(
        {
            **dict.fromkeys(("earliest", "smallest", "beginning"), "earliest"),
            **dict.fromkeys(("latest", "largest", "end"), "latest"),
            **dict.fromkeys(("error", "none"), "error"),
        }
    ),
    "group.id": text,
    "group.instance.id": text,
    "session.timeout.ms": number(1, 3_600_000),
    "heartbeat.interval.ms": number(1, 3_600_000),
    "max.poll.interval.ms": number(1, DAY_MS),
}
"""What has a meaning here; the field of the settings has this name with underscores."""

ALIASES: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}
"""Other names for the same."""

REFUSED: Final = {
    "ssl.keystore.location": "give ssl.certificate.location and ssl.key.location instead",
    "ssl.keystore.password": "give ssl.certificate.location and ssl.key.location instead",
    "ssl.truststore.location": "give ssl.ca.location (PEM) instead",
    "ssl.truststore.password": "give ssl.ca.location (PEM) instead",
    "ssl.crl.location": "revocation lists are not looked at",
    "ssl.cipher.suites": "the ciphers of the system's TLS are used",
    "ssl.curves.list": "the curves of the system's TLS are used",
    "ssl.sigalgs.list": "the signatures of the system's TLS are used",
    "ssl.engine.location": "engines are not supported",
    "ssl.providers": "providers are not supported",
    "sasl.jaas.config": "give sasl.username and sasl.password instead",
    "plugin.library.paths": "plugins are not loaded",
    "config.providers": "write the values themselves",
    "sasl.client.callback.handler.class": "classes of Java are not run",
    "sasl.login.callback.handler.class": "classes of Java are not run",
    "sasl.login.class": "classes of Java are not run",
    "ssl.engine.factory.class": "classes of Java are not run",
}
"""What would promise something that is not kept, and what to do instead."""

IGNORED_PREFIXES: Final = ("sasl.kerberos.", "sasl.oauthbearer.", "queued.", "queue.buffering.")
_IGNORED_TEXT: Final = """
    acks api.version.fallback.ms api.version.request api.version.request.timeout.ms
    auto.commit.enable auto.commit.interval.ms background_event_cb batch.num.messages batch.size
    broker.address.family broker.address.ttl broker.version.fallback builtin.features
    client.dns.lookup client.software.name client.software.version closesocket_cb
    compression.codec compression.level compression.type connect_cb connections.max.idle.ms
    consume.callback.max.messages consume_cb coordinator.query.interval.ms debug
    default_topic_conf delivery.report.only.error delivery.timeout.ms dr_cb dr_msg_cb
    enable.auto.commit enable.auto.offset.store enable.gapless.guarantee enable.idempotence
    enable.metrics.push enable.partition.eof enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.sparse.connections enabled_events error_cb
    fetch.error.backoff.ms fetch.queue.backoff.ms group.protocol group.protocol.type
    group.remote.assignor interceptors internal.termination.signal linger.ms
    log.connection.close log.queue log.thread.name log_cb log_level logger max.in.flight
    max.in.flight.requests.per.connection message.copy.max.bytes message.max.bytes
    message.send.max.retries message.timeout.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy msg_order_cmp oauth_cb oauthbearer_token_refresh_cb
    offset.store.method offset.store.path offset.store.sync.interval.ms offset_commit_cb
    on_commit on_delivery opaque open_cb partition.assignment.strategy partitioner
    partitioner_cb produce.offset.report queuing.strategy rebalance_cb
    reconnect.backoff.jitter.ms request.required.acks request.timeout.ms resolve_cb retries
    socket.blocking.max.ms socket.max.fails socket.nagle.disable socket.send.buffer.bytes
    socket_cb ssl.ca.certificate.stores statistics.interval.ms stats_cb
    sticky.partitioning.linger.ms test.mock.broker.rtt test.mock.num.brokers throttle_cb
    topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse transaction.timeout.ms
    transactional.id
"""
IGNORED: Final = frozenset(_IGNORED_TEXT.split())
"""What librdkafka and its bindings know, and what changes nothing here."""

_JAVA_IGNORED_TEXT: Final = """
    auto.include.jmx.reporter bootstrap.controllers buffer.memory exclude.internal.topics
    interceptor.classes key.deserializer key.serializer max.block.ms max.poll.records
    max.request.size metadata.max.idle.ms metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys
    receive.buffer.bytes sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
    sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms security.providers
    send.buffer.bytes socket.connection.setup.timeout.max.ms ssl.enabled.protocols
    ssl.keymanager.algorithm ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm transaction.two.phase.commit.enable value.deserializer
    value.serializer
"""
JAVA_IGNORED: Final = frozenset(_JAVA_IGNORED_TEXT.split())
"""What only Kafka's Java clients know, and what changes nothing here."""


def is_ignored(key: str) -> bool:
    """Whether the key is known elsewhere and without a meaning here."""
    return key in IGNORED or key.startswith(IGNORED_PREFIXES)
