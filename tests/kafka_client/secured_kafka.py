"""A real Apache Kafka with every kind of listener, for as long as a test needs it.

`with secured_kafka(folder) as kafka` starts one node; `kafka.config("SASL_SSL", "PLAIN")` is what a
client of it is told. Where Java, the jars or openssl are missing, the test is skipped by name.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench.broker import HOST, Launch, ProcessBroker, free_ports
from bench.peer import CLUSTER_ID, FORMAT_TIMEOUT_S, Peer, PeerAbsentError, find_peer
from tests.kafka_client.certificates import Certificates, has_openssl, make_certificates

USERNAME = "alice"
PASSWORD = "alice-secret"
HEAP = "512m"
REAUTHENTICATION_MS = 1500
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "MUTUAL": "SSL",  # asks clients for a certificate
    "RENEWED": "SASL_PLAINTEXT",  # lets a session live for REAUTHENTICATION_MS
    "MISNAMED": "SSL",  # shows a certificate for another host
    "SCRAM_ONLY": "SASL_PLAINTEXT",  # offers SCRAM-SHA-512 and nothing else
}
"""The listeners by name, and what security.protocol each speaks."""

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners={listeners},CONTROLLER://{host}:{controller_port}
advertised.listeners={listeners}
listener.security.protocol.map={protocols},CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
listener.name.mutual.ssl.client.auth=required
listener.name.misnamed.ssl.keystore.type=PEM
listener.name.misnamed.ssl.keystore.location={other_keystore}
listener.name.scram_only.sasl.enabled.mechanisms=SCRAM-SHA-512
"""


@dataclass(frozen=True)
class SecuredKafka:
    """A node that runs."""

    ports: dict[str, int]  # by the name of the listener
    certificates: Certificates
    process: ProcessBroker

    @property
    def plaintext(self) -> str:
        """Where clients without any security connect."""
        return self.server("PLAINTEXT")

    def server(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"

    def config(self, listener: str, mechanism: str = "PLAIN") -> dict[str, object]:
        """What a client is told, by librdkafka's names."""
        protocol = LISTENERS[listener]
        config: dict[str, object] = {
            "bootstrap.servers": self.server(listener),
            "security.protocol": protocol,
        }
        if protocol.startswith("SASL"):
            config |= {
                "sasl.mechanism": mechanism,
                "sasl.username": USERNAME,
                "sasl.password": PASSWORD,
            }
        if protocol.endswith("SSL"):
            config["ssl.ca.location"] = str(self.certificates.ca)
        return config


@contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    """A node with its data and certificates in that folder; skips where there can be none."""
    try:
        peer = find_peer()
    except PeerAbsentError as reason:
        pytest.skip(f"no Apache Kafka: {reason}")
    if not has_openssl():
        pytest.skip("no Apache Kafka with TLS: no openssl on the path")
    certificates = make_certificates(folder / "certificates")
    *free, controller_port = free_ports(len(LISTENERS) + 1)
    ports = dict(zip(LISTENERS, free, strict=True))
    properties = folder / "secured.properties"
    properties.write_text(_properties(folder, certificates, ports, controller_port))
    _format(peer, properties)
    command = peer.command("kafka.Kafka", str(properties), heap=HEAP)
    process = ProcessBroker(
        Launch("kafka", command, ports["PLAINTEXT"], folder / "secured.log", ready_timeout_s=60.0)
    )
    try:
        process.wait_ready()
        yield SecuredKafka(ports, certificates, process)
    finally:
        process.kill()


def _properties(
    folder: Path, certificates: Certificates, ports: dict[str, int], controller_port: int
) -> str:
    keystore = _keystore(folder / "server-store.pem", certificates.server, certificates.server_key)
    other = _keystore(
        folder / "other-store.pem", certificates.other_server, certificates.other_server_key
    )
    text = PROPERTIES.format(
        host=HOST,
        controller_port=controller_port,
        listeners=",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        protocols=",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        data=folder / "data",
        keystore=keystore,
        other_keystore=other,
        ca=certificates.ca,
    )
    return text + "".join(_sasl(name) for name in LISTENERS if "SASL" in LISTENERS[name])


def _sasl(listener: str) -> str:
    prefix = f"listener.name.{listener.lower()}"
    modules = "org.apache.kafka.common.security"
    lines = [
        (
            f"{prefix}.plain.sasl.jaas.config={modules}.plain.PlainLoginModule required "
            f'user_{USERNAME}="{PASSWORD}";'
        )
    ]
    for mechanism in MECHANISMS[1:]:
        name = mechanism.lower()
        lines.append(f"{prefix}.{name}.sasl.jaas.config={modules}.scram.ScramLoginModule required;")
    if listener == "RENEWED":
        lines += [
            f"{prefix}.{mechanism.lower()}.connections.max.reauth.ms={REAUTHENTICATION_MS}"
            for mechanism in MECHANISMS
        ]
    return "\n".join(lines) + "\n"


def _keystore(path: Path, certificate: Path, key: Path) -> Path:
    """Key and certificate in one file, as Kafka wants them."""
    path.write_text(key.read_text() + certificate.read_text())
    return path


def _format(peer: Peer, properties: Path) -> None:
    """Prepare the data directory, with the users of SCRAM in it."""
    users = [
        argument
        for mechanism in MECHANISMS[1:]
        for argument in (
            "--add-scram",
            f"{mechanism}=[name={USERNAME},password={PASSWORD}]",
        )
    ]
    arguments = ("format", "--cluster-id", CLUSTER_ID, "--config", str(properties), *users)
    done = subprocess.run(
        peer.command("kafka.tools.StorageTool", *arguments),
        capture_output=True,
        text=True,
        timeout=FORMAT_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
