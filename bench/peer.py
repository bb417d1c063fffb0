"""Apache Kafka as the peer: fetched once with Maven, started as a single KRaft node.

Rules: the jars live in a cache outside the repository and are used offline from then on; every
artifact has the version of the broker's own (`kafka_2.13`), the newest of 4.x. Where Java or Maven
is missing, or the fetch fails, `PeerAbsentError` says so and the caller goes on without a peer.
"""

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.broker import HOST, Launch, ProcessBroker, StartError, free_ports

VERSIONS = "[4.0,5.0-alpha)"
FETCH_TIMEOUT_S = 600.0
FORMAT_TIMEOUT_S = 60.0
HEAP = "1g"
CLUSTER_ID = "bGFrZWxvZy1iZW5jaC1wZQ"
COMPLETE = "complete"
PERFORMANCE_TOOL = "org.apache.kafka.tools.ProducerPerformance"

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>lakelog.bench</groupId><artifactId>peer</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = """<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>
<version>{version}</version>{exclusions}</dependency>"""
NO_TRANSITIVE = """<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId>
</exclusion></exclusions>"""

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.segment.delete.delay.ms=1000
"""


class PeerAbsentError(RuntimeError):
    """Apache Kafka cannot be had on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The jars of one Kafka version and the Java that runs them."""

    version: str
    libraries: Path
    java: str

    def command(self, main_class: str, *arguments: str, heap: str = "256m") -> list[str]:
        """Return the command line that runs one of Kafka's own programs."""
        return [
            *(self.java, f"-Xmx{heap}", f"-Xms{heap}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
            *("-XX:InitiatingHeapOccupancyPercent=35", "-Djava.awt.headless=true"),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            *("-cp", f"{self.libraries}/*", main_class, *arguments),
        ]


def cache_directory() -> Path:
    """Where fetched peers and clients are kept: never inside the repository."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "lakelog"


def find_peer(*, refresh: bool = False) -> Peer:
    """Return the peer from the cache, or fetch it; raise PeerAbsentError where that cannot be."""
    java = shutil.which("java")
    if java is None:
        raise PeerAbsentError("no java on the path")
    if not refresh:
        cached = sorted(cached_versions(), key=version_order)
        if cached:
            return Peer(cached[-1], cache_directory() / f"kafka-{cached[-1]}", java)
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerAbsentError("no mvn on the path, and nothing in the cache")
    version = newest_version(maven)
    return Peer(version, fetch(maven, version), java)


def cached_versions() -> list[str]:
    """The versions whose jars are all in the cache."""
    marks = cache_directory().glob(f"kafka-*/{COMPLETE}")
    return [mark.parent.name.removeprefix("kafka-") for mark in marks]


def version_order(version: str) -> tuple[int, ...]:
    """Sort key of a version such as 4.3.1."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def newest_version(maven: str) -> str:
    """Ask the registry for the newest 4.x of the broker itself.

    The clients alone may be published ahead of the broker, so `kafka_2.13` decides.
    """
    dependency = DEPENDENCY.format(
        group="org.apache.kafka",
        artifact="kafka_2.13",
        version=VERSIONS,
        exclusions=NO_TRANSITIVE,
    )
    printed = run_maven(maven, dependency, "dependency:list")
    found = re.search(r"org\.apache\.kafka:kafka_2\.13:jar:([\d.]+)", printed)
    if found is None:
        raise PeerAbsentError("Maven named no version of Apache Kafka 4.x")
    return found.group(1)


def fetch(maven: str, version: str) -> Path:
    """Copy the broker, the tools and all they need into the cache; return the directory."""
    target = cache_directory() / f"kafka-{version}"
    if (target / COMPLETE).exists():
        return target
    wanted = [("org.apache.kafka", name, version) for name in ("kafka_2.13", "kafka-tools")]
    # Kafka 4 speaks slf4j 1.7; this binding prints warnings to the log that a failed start shows.
    wanted.append(("org.slf4j", "slf4j-simple", "1.7.36"))
    dependencies = "".join(
        DEPENDENCY.format(group=group, artifact=artifact, version=number, exclusions="")
        for group, artifact, number in wanted
    )
    target.mkdir(parents=True, exist_ok=True)
    run_maven(
        maven,
        dependencies,
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={target}",
    )
    (target / COMPLETE).touch()
    return target


def run_maven(maven: str, dependencies: str, *arguments: str) -> str:
    """Run Maven on a throw-away project and return what it printed."""
    with tempfile.TemporaryDirectory(prefix="lakelog-peer-") as folder:
        Path(folder, "pom.xml").write_text(POM.format(dependencies=dependencies))
        try:
            done = subprocess.run(
                [maven, "--batch-mode", *arguments],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise PeerAbsentError(f"Maven took longer than {FETCH_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise PeerAbsentError(f"Maven failed: {' '.join(errors[:1]) or done.stderr[-300:]}")
    return done.stdout


def launch_peer(
    peer: Peer,
    data: Path,
    *,
    port: int | None = None,
    controller_port: int | None = None,
    core: int | None = None,
) -> ProcessBroker:
    """Start a Kafka node on this data directory without waiting for it; formats a fresh one."""
    free = free_ports(2)
    port = free[0] if port is None else port
    data.mkdir(parents=True, exist_ok=True)
    properties = data.with_name(f"{data.name}.properties")
    properties.write_text(
        PROPERTIES.format(
            host=HOST, port=port, controller_port=controller_port or free[1], data=data
        )
    )
    if not (data / "meta.properties").exists():
        arguments = ("format", "--cluster-id", CLUSTER_ID, "--config", str(properties))
        try:
            subprocess.run(
                peer.command("kafka.tools.StorageTool", *arguments),
                check=True,
                capture_output=True,
                timeout=FORMAT_TIMEOUT_S,
            )
        except subprocess.SubprocessError as error:
            raise StartError(f"kafka could not format its directory: {error}") from error
    command = peer.command("kafka.Kafka", str(properties), heap=HEAP)
    log_path = data.with_name(f"{data.name}.log")
    return ProcessBroker(Launch("kafka", command, port, log_path, core=core))


def start_peer(
    peer: Peer,
    data: Path,
    *,
    port: int | None = None,
    controller_port: int | None = None,
    core: int | None = None,
) -> ProcessBroker:
    """Start a Kafka node on this data directory and return when it serves."""
    broker = launch_peer(peer, data, port=port, controller_port=controller_port, core=core)
    broker.wait_ready()
    return broker
