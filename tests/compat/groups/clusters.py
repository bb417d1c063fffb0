"""The brokers under a group: ours or Apache Kafka, one or two, each a process that can be killed.

Two of our brokers share one data directory. Two Kafka brokers have a third process as controller,
so that either may die, and keep everything twice.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.broker import HOST, Launch, ProcessBroker, free_ports
from bench.peer import CLUSTER_ID, Peer, find_peer

FORMAT_TIMEOUT_S = 60.0
READY_TIMEOUT_S = 90.0
PAUSES_MAX = 50
PAUSE_AGAIN_S = 0.01

# The sessions of KIP-848 are the broker's choice: short ones make a kill quick to notice.
OURS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "{session_ms}",
    "group.consumer.heartbeat.interval.ms": "500",
}
COMMON = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "{session_ms}",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
}


@dataclass(slots=True)
class Cluster:
    """Brokers by node id; every one can be killed, paused and started again."""

    name: str
    starts: Mapping[int, Callable[[], ProcessBroker]]
    brokers: dict[int, ProcessBroker] = field(default_factory=dict)
    metadata: Path | None = None
    """The SQLite file that the brokers share."""

    @property
    def bootstrap(self) -> str:
        """`host:port,...` of all brokers that were ever started."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def port(self, node_id: int) -> int:
        """Return the port of a broker."""
        return self.brokers[node_id].port

    def start(self, node_id: int) -> float:
        """Start a broker and return how long it took to serve."""
        self.brokers[node_id] = self.starts[node_id]()
        return self.brokers[node_id].wait_ready()

    def kill(self, node_id: int) -> None:
        """End a broker at once: SIGKILL."""
        self.brokers[node_id].kill()

    def pause(self, node_id: int) -> None:
        """Stop a broker in its tracks: SIGSTOP.

        One that is stopped inside a transaction holds the lock of the SQLite file, and then nobody
        can write: that is SQLite's nature and not what is tried here, so it is stopped once more.
        """
        for _ in range(PAUSES_MAX):
            os.kill(self.brokers[node_id].pid, signal.SIGSTOP)
            if self.metadata is None or is_free(self.metadata):
                return
            os.kill(self.brokers[node_id].pid, signal.SIGCONT)
            time.sleep(PAUSE_AGAIN_S)
        raise TimeoutError(f"broker {node_id} was never found outside of a transaction")

    def resume(self, node_id: int) -> None:
        """Let a paused broker go on: SIGCONT."""
        os.kill(self.brokers[node_id].pid, signal.SIGCONT)

    def stop(self) -> None:
        """End all brokers, whatever state they are in."""
        for broker in self.brokers.values():
            broker.kill()


def is_free(metadata: Path) -> bool:
    """Whether somebody may write to a SQLite file now."""
    connection = sqlite3.connect(metadata, timeout=0.05, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


@contextmanager
def our_cluster(folder: Path, size: int, session_ms: int) -> Iterator[Cluster]:
    """Lend that many of our brokers on one data directory."""
    ports = free_ports(2 * size)
    settings = [
        argument
        for name, value in OURS.items()
        for argument in ("--set", f"{name}={value.format(session_ms=session_ms)}")
    ]

    def start(at: int) -> ProcessBroker:
        port, http_port = ports[2 * at], ports[2 * at + 1]
        command = [
            *(sys.executable, "-m", "lakelog.cli.main", "serve", "--broker-id", str(at + 1)),
            *("--listen", f"{HOST}:{port}", "--http", f"{HOST}:{http_port}"),
            *("--data", str(folder / "data"), *settings),
        ]
        return ProcessBroker(Launch("ours", command, port, folder / f"broker-{at + 1}.log"))

    starts = {at + 1: (lambda at=at: start(at)) for at in range(size)}
    cluster = Cluster("ours", starts, metadata=folder / "data" / "metadata.db")
    try:
        for node_id in starts:
            cluster.start(node_id)
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def kafka_cluster(folder: Path, size: int, session_ms: int) -> Iterator[Cluster]:
    """Lend that many brokers of Apache Kafka, and a controller beside them."""
    peer = find_peer()
    controller_port, *ports = free_ports(size + 1)
    controller = KafkaNode(peer, folder, 100, controller_port, controller_port)
    nodes = [
        KafkaNode(peer, folder, at + 1, port, controller_port) for at, port in enumerate(ports)
    ]
    for node in (controller, *nodes):
        node.prepare(size, session_ms)
    cluster = Cluster(f"kafka {peer.version}", {node.node_id: node.launch for node in nodes})
    leading = controller.launch()
    try:
        for node in nodes:
            cluster.brokers[node.node_id] = node.launch()
        for broker in cluster.brokers.values():
            broker.wait_ready()
        yield cluster
    finally:
        cluster.stop()
        leading.kill()


@dataclass(frozen=True, slots=True)
class KafkaNode:
    """One node of Apache Kafka: the controller, or a broker."""

    peer: Peer
    folder: Path
    node_id: int
    port: int
    controller_port: int

    def prepare(self, size: int, session_ms: int) -> None:
        """Write the settings and format the directory."""
        is_controller = self.port == self.controller_port
        listener = "CONTROLLER" if is_controller else "PLAINTEXT"
        settings = {
            **{name: value.format(session_ms=session_ms) for name, value in COMMON.items()},
            "process.roles": "controller" if is_controller else "broker",
            "node.id": str(self.node_id),
            "controller.quorum.voters": f"100@{HOST}:{self.controller_port}",
            "listeners": f"{listener}://{HOST}:{self.port}",
            "log.dirs": str(self.folder / f"kafka-{self.node_id}"),
            "offsets.topic.replication.factor": str(size),
            "default.replication.factor": str(size),
            "transaction.state.log.replication.factor": str(size),
            "share.coordinator.state.topic.replication.factor": str(size),
        }
        if is_controller:
            del settings["inter.broker.listener.name"]
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        self.properties.write_text(text)
        arguments = ("format", "--cluster-id", CLUSTER_ID, "--config", str(self.properties))
        done = subprocess.run(
            self.peer.command("kafka.tools.StorageTool", *arguments),
            capture_output=True,
            timeout=FORMAT_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-600:]

    @property
    def properties(self) -> Path:
        """Where this node's settings are."""
        return self.folder / f"kafka-{self.node_id}.properties"

    def launch(self) -> ProcessBroker:
        """Start the node without waiting for it."""
        command = self.peer.command("kafka.Kafka", str(self.properties), heap="512m")
        log_path = self.folder / f"kafka-{self.node_id}.log"
        return ProcessBroker(
            Launch("kafka", command, self.port, log_path, ready_timeout_s=READY_TIMEOUT_S)
        )


@contextmanager
def cluster_of(against: str, folder: Path, size: int, session_ms: int) -> Iterator[Cluster]:
    """Lend the brokers that the command line asks for."""
    if against == "kafka":
        with kafka_cluster(folder, size, session_ms) as cluster:
            yield cluster
    else:
        with our_cluster(folder, size, session_ms) as cluster:
            yield cluster


def await_true(what: str, condition: Callable[[], bool], timeout_s: float) -> float:
    """Wait until something holds and return how long it took; raise TimeoutError if it does not."""
    started_s = time.monotonic()
    while not condition():
        if time.monotonic() - started_s > timeout_s:
            raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(0.1)
    return time.monotonic() - started_s
