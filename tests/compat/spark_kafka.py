"""`python -m tests.compat.spark_kafka`: one Spark job by three ways, with the same rows each time.

Spark's own Kafka connector against Apache Kafka, the same against our broker, and our format
against our broker: the job is the same but for the format's name and the option that connects. Each
case must come to what was written, in every arm. What cannot be had here is named and left out.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.broker import HOST, ProcessBroker, free_ports
from bench.ours import start_ours
from bench.peer import PeerAbsentError, find_peer, start_peer
from bench.spark_connector import find_connector, spark_session
from pyspark.sql import SparkSession
from tests.compat.spark_job import Connection, StuckError
from tests.compat.spark_kafka_lab import REFUSED, Case, Lab, Stage
from tests.compat.spark_kafka_reads import READS
from tests.compat.spark_kafka_streams import STREAMS
from tests.compat.spark_kafka_writes import WRITES

from lakelog.pipeline.spark.diagnosis import one_line, spark_failures, text_of

CASES = (*READS, *STREAMS, *WRITES)
KAFKA, BROKER, LAKELOG = "kafka on Kafka", "kafka on ours", "lakelog on ours"
ARMS = (KAFKA, BROKER, LAKELOG)
PAST_MS = 3_600_000
SAID_CHARACTERS = 600
REASON_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class Finding:
    """A case that did not come to what it must, in one arm."""

    case: str
    arm: str
    said: str


@contextmanager
def arm(name: str, folder: Path, base_ms: int) -> Iterator[tuple[Lab, Connection]]:
    """Start the broker of an arm, with topics; raise PeerAbsentError where it cannot be had."""
    data = folder / "data"
    port, http_port = free_ports(2)
    broker: ProcessBroker
    if name == KAFKA:
        broker = start_peer(find_peer(), data)
    else:
        broker = start_ours(data, port=port, http_port=http_port)
    is_ours = name != KAFKA
    connection = Connection("kafka", "kafka.bootstrap.servers", broker.bootstrap)
    if name == LAKELOG:
        connection = Connection("lakelog", "lakelog.server", f"http://{HOST}:{http_port}")
    try:
        lab = Lab(broker, data if is_ours else None, base_ms, folder)
        lab.seed()
        yield lab, connection
    finally:
        broker.stop()


def run_case(stage: Stage, case: Case) -> tuple[object, str]:
    """Return what came of a case, and what was said when it was refused."""
    try:
        return case.run(stage), ""
    except StuckError as stuck:
        return "stuck", str(stuck)
    except spark_failures() as refusal:
        return REFUSED, one_line(text_of(refusal))


def differs(found: object, expected: object) -> str:
    """Say where two results differ; empty if they do not."""
    if found == expected:
        return ""
    if isinstance(found, tuple) and isinstance(expected, tuple) and len(found) == len(expected):
        return next(
            differs(one, other) for one, other in zip(found, expected, strict=True) if one != other
        )
    if isinstance(found, tuple) and isinstance(expected, tuple):
        more = [one for one in found if one not in expected][:2]
        less = [one for one in expected if one not in found][:2]
        return f"{len(found)} and not {len(expected)}: too much {more}, missing {less}"
    return f"{found!r} and not {expected!r}"


def run_arm(
    spark: SparkSession,
    place: tuple[str, Lab, Connection],
    cases: Sequence[Case],
    say: Callable[[str], None],
) -> list[Finding]:
    """Run all cases of one arm."""
    name, lab, connection = place
    findings = []
    for number, case in enumerate(cases):
        began = time.monotonic()
        folder = lab.folder / f"case-{number}"
        found, refusal = run_case(Stage(spark, connection, lab, folder), case)
        said = differs(found, case.expected(lab))
        if said:
            findings.append(Finding(case.name, name, f"{refusal} {said}"[:SAID_CHARACTERS]))
        state = "DIFFERS" if said else "refused" if refusal else "ok"
        took_s = time.monotonic() - began
        say(f"{name:16} {case.name:42} {state:8} {took_s:5.1f} s  {refusal[:REASON_CHARACTERS]}")
    return findings


def run_all(
    spark: SparkSession, arms: Sequence[str], cases: Sequence[Case], say: Callable[[str], None]
) -> list[Finding]:
    """Run every arm with a broker of its own; one that cannot be had is named."""
    findings: list[Finding] = []
    base_ms = time.time_ns() // 1_000_000 - PAST_MS
    for name in arms:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lakelog-spark-"))
            try:
                lab, connection = stack.enter_context(arm(name, Path(folder), base_ms))
            except PeerAbsentError as reason:
                say(f"{name:16} skipped: {reason}")
                continue
            findings += run_arm(spark, (name, lab, connection), cases, say)
    return findings


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.spark_kafka", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the main cases, without Kafka itself")
    parser.add_argument("--arms", default="", help="only arms whose names contain one of these")
    parser.add_argument("--cases", default="", help="only cases whose names contain one of these")
    parser.add_argument("--cached", action="store_true", help="fetch nothing")
    return parser.parse_args(arguments)


def matching(name: str, wanted: str) -> bool:
    """Whether a name contains one of the words, or there are none."""
    words = [word for word in wanted.split(",") if word]
    return not words or any(word in name for word in words)


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; 1 if anything differs, 2 if there is no connector."""
    options = parse(arguments)
    arms = [one for one in ARMS if matching(one, options.arms)]
    cases = [one for one in CASES if matching(one.name, options.cases)]
    if options.quick:
        arms = [one for one in arms if one != KAFKA]
        cases = [one for one in cases if one.is_quick]
    try:
        connector = find_connector(fetch=not options.cached)
    except PeerAbsentError as reason:
        print(f"skipped: {reason}")
        return 2
    with spark_session(connector, {"spark.sql.shuffle.partitions": "4"}) as spark:
        print(f"Spark {spark.version}, its Kafka connector {connector.version}", flush=True)
        findings = run_all(spark, arms, cases, lambda line: print(line, flush=True))
    for one in findings:
        print(f"FOUND: {one.arm}: {one.case}: {one.said}")
    print(f"{len(cases)} cases, {'NOT ' if findings else ''}the same in every arm")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
