"""Spark's own Kafka connector: fetched once with Maven, and a session that has it.

Rules: the jars live in the cache beside Kafka's own and are used offline from then on. They must be
on the class path when Spark starts, so the session is one of its own. The connector of the Spark
that runs here comes first; where the registry lacks it, the newest older one that runs on it.
`PeerAbsentError` says why there is none.
"""

import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peer import COMPLETE, DEPENDENCY, PeerAbsentError, cache_directory, run_maven
from lakelog.pipeline.spark.session import SessionStart
from lakelog.pipeline.spark.settings import SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALA = "2.13"
GROUP = "org.apache.spark"
CONNECTOR = f"spark-sql-kafka-0-10_{SCALA}"
TOKENS = f"spark-token-provider-kafka-0-10_{SCALA}"
OLDER = (("4.2.0", "4.2.0"), ("4.2.0", "4.1.0-preview1"))
"""Connectors and token providers that run on a newer Spark; registries may lack one of a pair."""
WANTED = (CONNECTOR, TOKENS, "kafka-clients", "commons-pool2")
"""What Spark does not bring along itself."""
EXCLUSION = "<exclusion><groupId>{group}</groupId><artifactId>*</artifactId></exclusion>"
EXCLUSIONS = f"""<exclusions>{EXCLUSION.format(group=GROUP)}
{EXCLUSION.format(group="org.scala-lang")}</exclusions>"""


@dataclass(frozen=True, slots=True)
class SparkConnector:
    """The jars of one version."""

    version: str
    jars: tuple[Path, ...]


def find_connector(*, fetch: bool = True) -> SparkConnector:
    """Return the connector from the cache, or fetch it; raise PeerAbsentError where it is not."""
    if shutil.which("java") is None:
        raise PeerAbsentError("no java on the path")
    own = version("pyspark")
    pairs = [(own, own), *OLDER]
    for number, tokens in pairs:
        folder = folder_of(number, tokens)
        if (folder / COMPLETE).exists():
            return SparkConnector(number, tuple(sorted(folder.glob("*.jar"))))
    maven = shutil.which("mvn")
    if maven is None or not fetch:
        raise PeerAbsentError("Spark's Kafka connector is not in the cache")
    reasons = []
    for number, tokens in pairs:
        try:
            return fetched(maven, number, tokens)
        except PeerAbsentError as reason:
            reasons.append(f"{number}: {reason}")
    raise PeerAbsentError("; ".join(reasons))


def folder_of(number: str, tokens: str) -> Path:
    """Where the jars of a version are kept."""
    mixed = "" if number == tokens else f"-tokens-{tokens}"
    return cache_directory() / f"spark-kafka-{number}{mixed}"


def fetched(maven: str, number: str, tokens: str) -> SparkConnector:
    """Copy the connector and what it needs into the cache."""
    folder = folder_of(number, tokens)
    dependencies = "".join(
        DEPENDENCY.format(group=GROUP, artifact=name, version=wanted, exclusions=EXCLUSIONS)
        for name, wanted in ((CONNECTOR, number), (TOKENS, tokens))
    )
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run_maven(
            maven,
            dependencies,
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DincludeArtifactIds={','.join(WANTED)}",
            f"-DoutputDirectory={folder}",
        )
    except PeerAbsentError:
        shutil.rmtree(folder)
        raise
    (folder / COMPLETE).touch()
    return SparkConnector(number, tuple(sorted(folder.glob("*.jar"))))


@contextmanager
def spark_session(
    connector: SparkConnector | None, settings: Mapping[str, str] | None = None
) -> "Iterator[SparkSession]":
    """Lend a session of two slots on this machine, with the connector on its class path."""
    jars = {} if connector is None else {"spark.jars": ",".join(map(str, connector.jars))}
    options = SparkOptions(
        master="local[2]", driver_memory_bytes=2 << 30, settings={**jars, **(settings or {})}
    )
    # A thread of its own: on the main one PySpark would take SIGINT for itself.
    with ThreadPoolExecutor(1) as thread:
        session = thread.submit(SessionStart(options).run).result()
    try:
        # Spark looks formats that are written up in the thread's own session, which this sets.
        session.spark.createDataFrame([], "none int")
        yield session.spark
    finally:
        session.close()
