"""What tests of the consumer are given: a broker of ours for a module, a topic for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lake.running import running_broker


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(Path(tmp_path_factory.mktemp("broker"))) as broker:
        yield str(broker.running.address)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return "".join(letter if letter.isalnum() else "-" for letter in name)[:200]
