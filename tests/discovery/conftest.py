"""Brokers for the tests of discovery: each test that asks for a `stand` runs on both."""

from collections.abc import Iterator

import pytest
from tests.discovery.stands import Stand, our_stand


@pytest.fixture(scope="module", params=["ours", pytest.param("kafka", marks=pytest.mark.proof)])
def stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    """A broker of ours, which ends with the module, then Apache Kafka where it can be had."""
    if request.param == "ours":
        with our_stand() as ours:
            yield ours
    else:
        yield request.getfixturevalue("apache_kafka")


@pytest.fixture(scope="module")
def ours() -> Iterator[Stand]:
    """Our broker alone, for what has nothing to do with whose broker it is."""
    with our_stand() as stand:
        yield stand
