"""Brokers for the tests of discovery: each test that asks for a `stand` runs on both."""

from collections.abc import Iterator

import pytest
from bench.peer import PeerAbsentError, find_peer
from tests.discovery.stands import Stand, kafka_stand, our_stand


@pytest.fixture(scope="module", params=["ours", "kafka"])
def stand(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stand]:
    """Our broker, then Apache Kafka where it can be had; they end with the module."""
    if request.param == "ours":
        with our_stand() as ours:
            yield ours
        return
    try:
        peer = find_peer()
    except PeerAbsentError as reason:
        pytest.skip(f"no Apache Kafka: {reason}")
    with kafka_stand(peer, tmp_path_factory.mktemp("kafka")) as theirs:
        yield theirs


@pytest.fixture(scope="module")
def ours() -> Iterator[Stand]:
    """Our broker alone, for what has nothing to do with whose broker it is."""
    with our_stand() as stand:
        yield stand
