"""Which tests run in the same of several pytest processes, and what is begun first.

A file stays whole, so that its fixtures are made once. Files that need the same expensive server
(a Spark session, an Apache Kafka) make a group, so that a run starts each of them once. The longest
groups are begun first: what is left for the end is short, and both cores stay busy.
"""

from collections.abc import Sequence

import pytest
from xdist.scheduler import LoadScopeScheduling

PIPELINE = ("tests/pipeline/spark/",)
SPARK = (
    "tests/spark/",
    *PIPELINE,
    "tests/examples/",
    "tests/docs/test_tour",
)
KAFKA = ("tests/client/test_consumer_real_kafka", "tests/discovery/test_faults_coordinator")
KAFKA_PARAMETER = "[kafka"
SECURED_KAFKA = (
    "tests/cli/test_secured_kafka",
    "tests/client/test_consumer_secured_kafka",
    "tests/discovery/test_integration_security",
)

LONGEST_FIRST = (
    *SPARK,
    *SECURED_KAFKA,
    "tests/pipeline/",
    "tests/catalog/",
    "tests/cli/",
    "tests/sim/",
    "tests/discovery/",
    "tests/client/",
    "tests/kafka_client/",
    "tests/http/",
    "tests/index/",
)


def group_of(nodeid: str) -> str:
    """The group of a test: the server that it shares with other files, or its own file."""
    if nodeid.startswith(PIPELINE):
        return "pipeline"  # a session of its own: beside the others it would be the longest way
    if nodeid.startswith(SPARK):
        return "spark"
    if nodeid.startswith(SECURED_KAFKA):
        return "secured kafka"
    if nodeid.startswith(KAFKA) or KAFKA_PARAMETER in nodeid:
        return "kafka"
    return nodeid.split("::", 1)[0]


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests with the longest groups first, and otherwise as they were collected."""

    def rank(item: pytest.Item) -> int:
        for place, prefix in enumerate(LONGEST_FIRST):
            if item.nodeid.startswith(prefix):
                return place
        return len(LONGEST_FIRST)

    return sorted(items, key=rank)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands whole groups to the processes."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
