"""Kafka's own command line tools against a broker: what each says, and what it is refused."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench.peer import Peer, PeerAbsentError, cached_versions, find_peer
from tests.docs.pages import DOCS, rows, section

from lakelog.testing.broker import EmbeddedBroker

RUN_S = 90.0
TOOLS = "org.apache.kafka.tools."
CONFIGS = "kafka.admin.ConfigCommand"
REASSIGN = f"{TOOLS}reassign.ReassignPartitionsCommand"
GROUPS = f"{TOOLS}consumer.group.ConsumerGroupCommand"


@dataclass(frozen=True, slots=True)
class Case:
    """One call of a tool, under the name that its script has; what it prints, and its end."""

    tool: str
    main_class: str
    arguments: str
    says: str
    ends_well: bool = True


CASES = (
    Case(
        "kafka-topics",
        f"{TOOLS}TopicCommand",
        "--create --topic new --partitions 2 --config compression.type=zstd",
        "Created topic new.",
    ),
    Case("kafka-topics", f"{TOOLS}TopicCommand", "--describe --topic t", "PartitionCount: 3"),
    Case(
        "kafka-configs",
        CONFIGS,
        "--alter --entity-type brokers --entity-default --add-config log.retention.ms=7200000",
        "Completed updating default config for brokers in the cluster.",
    ),
    Case(
        "kafka-configs",
        CONFIGS,
        "--describe --entity-type brokers --entity-default",
        "synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7200000}",
    ),
    Case(
        "kafka-configs",
        CONFIGS,
        "--alter --entity-type brokers --entity-name 1 --add-config background.threads=9",
        "Completed updating config for broker 1.",
    ),
    Case(
        "kafka-configs",
        CONFIGS,
        "--alter --entity-type brokers --entity-default --add-config num.partitions=3",
        "num.partitions (set topics.num_partitions in the file)",
        ends_well=False,
    ),
    Case("kafka-configs", CONFIGS, "--describe --entity-type users", ""),
    Case(
        "kafka-configs",
        CONFIGS,
        "--alter --entity-type users --entity-name u --add-config producer_byte_rate=1",
        "Lakelog has no quotas",
        ends_well=False,
    ),
    Case("kafka-reassign-partitions", REASSIGN, "--list", "No partition reassignments found."),
    Case(
        "kafka-reassign-partitions",
        REASSIGN,
        "--execute --throttle 1000 --reassignment-json-file {same}",
        "Successfully started partition reassignment for t-0",
    ),
    Case(
        "kafka-reassign-partitions",
        REASSIGN,
        "--verify --reassignment-json-file {same}",
        "Reassignment of partition t-0 is completed.",
    ),
    Case(
        "kafka-leader-election",
        f"{TOOLS}LeaderElectionCommand",
        "--election-type preferred --topic t --partition 0",
        "Valid replica already elected for partitions t-0",
    ),
    Case("kafka-features", f"{TOOLS}FeatureCommand", "describe", "Feature: metadata.version"),
    Case(
        "kafka-features",
        f"{TOOLS}FeatureCommand",
        "upgrade --feature metadata.version=20",
        "by the versions of its brokers",
        ends_well=False,
    ),
    Case(
        "kafka-metadata-quorum",
        f"{TOOLS}MetadataQuorumCommand",
        "describe --status",
        "MaxFollowerLag:         0",
    ),
    Case("kafka-log-dirs", f"{TOOLS}LogDirsCommand", "--describe", '"partition":"t-0"'),
    Case(
        "kafka-producer-perf-test",
        f"{TOOLS}ProducerPerformance",
        "--topic t --num-records 300 --record-size 10 --throughput -1",
        "300 records sent",
    ),
    Case(
        "kafka-delete-records",
        f"{TOOLS}DeleteRecordsCommand",
        "--offset-json-file {records}",
        "partition: t-0\tlow_watermark: 0",
    ),
    Case("kafka-get-offsets", f"{TOOLS}GetOffsetShell", "--topic t --time -2", "t:0:0"),
    Case(
        "kafka-consumer-perf-test",
        f"{TOOLS}ConsumerPerformance",
        "--topic t --num-records 200 --group g --timeout 30000",
        "nMsg.sec",
    ),
    Case("kafka-consumer-groups", GROUPS, "--describe --group g", "LOG-END-OFFSET"),
    Case("kafka-consumer-groups", GROUPS, "--delete --group g", "was successful"),
    Case("kafka-groups", f"{TOOLS}GroupsCommand", "--list", "PROTOCOL"),
    Case(
        "kafka-broker-api-versions",
        f"{TOOLS}BrokerApiVersionsCommand",
        "",
        "ElectLeaders(43): 0 to 2 [usable: 2]",
    ),
    Case("kafka-cluster", f"{TOOLS}ClusterTool", "cluster-id", "Cluster ID: "),
    Case(
        "kafka-cluster",
        f"{TOOLS}ClusterTool",
        "unregister --id 7",
        "Broker 7 is not registered.",
        ends_well=False,
    ),
    Case("kafka-transactions", f"{TOOLS}TransactionsCommand", "list", "TransactionalId"),
    Case(
        "kafka-acls",
        f"{TOOLS}AclCommand",
        "--list",
        "SecurityDisabledException: No Authorizer is configured.",
        ends_well=False,
    ),
)


@pytest.fixture(scope="module")
def peer() -> Peer:
    if not cached_versions():
        pytest.skip("no jars of Apache Kafka: `make compat` fetches them")
    try:
        return find_peer()
    except PeerAbsentError as absent:
        pytest.skip(str(absent))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        running.create_topic("t", partitions=3)
        yield running


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    written = {
        "same": [{"topic": "t", "partition": 0, "replicas": [1]}],
        "records": [{"topic": "t", "partition": 0, "offset": 0}],
    }
    for name, partitions in written.items():
        (folder / name).write_text(json.dumps({"version": 1, "partitions": partitions}))
    return {name: folder / name for name in written}


@pytest.mark.proof
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.tool} {case.arguments}")
def test_the_tool_says_what_it_says_of_a_kafka(
    peer: Peer, broker: EmbeddedBroker, files: dict[str, Path], case: Case
) -> None:
    arguments = [argument.format(**files) for argument in case.arguments.split()]
    servers = ["--bootstrap-server", broker.bootstrap]
    # The one tool that takes it behind the name of what it shall do.
    is_cluster = case.tool == "kafka-cluster"
    arguments = [*arguments, *servers] if is_cluster else [*servers, *arguments]
    done = subprocess.run(
        peer.command(case.main_class, *arguments, heap="256m"),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert case.says in done.stdout + done.stderr
    assert (done.returncode == 0) == case.ends_well, done.stdout + done.stderr


def test_the_page_names_the_tools_that_are_tried_and_no_others() -> None:
    named = [row[0].strip("`") for row in rows(section(DOCS / "administration.md", "## Tools"))]
    assert named == sorted(named)
    assert set(named) == {case.tool for case in CASES}
