"""What all tests share: how thoroughly they look, which share a process, and the real Kafkas.

A Kafka is started once for all tests that need one, so topics and groups on it have names that no
other file uses.
"""

from collections.abc import Iterator

import pytest
from bench.broker import StartError
from bench.peer import PeerAbsentError, find_peer
from tests.discovery.stands import Stand, kafka_stand
from tests.kafka_client.secured_kafka import SecuredKafka, secured_kafka
from tests.left_open import LeftOpen
from tests.process_groups import GroupScheduling, in_order
from tests.profiles import load_profile

load_profile()


def pytest_configure(config: pytest.Config) -> None:
    """Sockets and processes that tests leave behind fail the run."""
    config.pluginmanager.register(LeftOpen(config), "left-open")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest groups of tests first."""
    items[:] = in_order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling:
    """Files stay whole, and files that share an expensive server share a process."""
    return GroupScheduling(config, log)


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """Apache Kafka where it can be had; it allows short sessions and creates no topic unasked."""
    try:
        with kafka_stand(find_peer(), tmp_path_factory.mktemp("kafka")) as running:
            yield running
    except (PeerAbsentError, StartError) as reason:
        pytest.skip(f"no Apache Kafka: {reason}")


@pytest.fixture(scope="session")
def secured_apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """Apache Kafka with a listener for every security protocol."""
    with secured_kafka(tmp_path_factory.mktemp("secured")) as running:
        yield running
