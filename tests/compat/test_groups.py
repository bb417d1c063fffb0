"""Members of three Python clients share groups, come and go: nothing is skipped, commits are exact.

`python -m tests.compat.groups` is the long version, with Java, kafkajs, kills and fail-over. With
LAKELOG_TEST_AGAINST=kafka the same runs against Apache Kafka.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.groups.churn import Round, churn
from tests.compat.groups.clusters import Cluster, cluster_of
from tests.compat.groups.crew import Slot
from tests.compat.groups.look import Admin
from tests.compat.groups.scene import Scene

RECORDS = 3_000
SLOTS = {
    "range": (Slot("confluent"), Slot("aiokafka"), Slot("kafka-python")),
    "cooperative": (Slot("confluent"), Slot("confluent", commits="async"), Slot("kafka-python")),
    "consumer": (
        Slot("confluent"),
        Slot("confluent", commits="automatic"),
        Slot("confluent", static=True),
    ),
}
SCRIPT: tuple[Round, ...] = (
    [("start", 0), ("start", 1)],
    [("start", 2)],
    [("leave", 0)],
    [("start", 0), ("leave", 1)],
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    against = os.environ.get("LAKELOG_TEST_AGAINST", "ours")
    with cluster_of(against, tmp_path_factory.mktemp("groups"), 1, 6_000) as found:
        yield found


@pytest.mark.proof
@pytest.mark.parametrize("flavour", SLOTS)
def test_members_that_come_and_go_skip_nothing_and_commit_exactly(
    cluster: Cluster, flavour: str, tmp_path: Path
) -> None:
    scene = Scene(
        cluster=cluster,
        folder=tmp_path,
        admin=Admin(cluster.bootstrap),
        records=RECORDS,
        per_second=RECORDS / 2,
        session_ms=6_000,
        report=print,
        patience_s=20.0,
    )
    churn(scene, flavour, SLOTS[flavour], SCRIPT)
    assert scene.findings == []
