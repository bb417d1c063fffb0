"""The examples about snapshots run, against a table that has let go of some."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.docs.pages import Fence, all_fences
from tests.lake.running import Broker, running_broker
from tests.tables.stage import FRESH, grow

TIMEOUT_S = 60
HTTP = "http://127.0.0.1:8080"
KAFKA = "127.0.0.1:9092"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("data")) as made:
        made.create("greetings", 1, **FRESH)
        grow(made, "greetings", 4)
        kafka = {"bootstrap.servers": str(made.running.address), "group.id": "billing"}
        consumer = Consumer(kafka)
        consumer.commit(offsets=[TopicPartition("greetings", 0, 7)], asynchronous=False)
        consumer.close()
        yield made


def place(fence: Fence) -> str:
    return fence.place


@pytest.mark.parametrize("fence", all_fences("python", "snapshots"), ids=place)
def test_an_example_about_snapshots_runs(fence: Fence, broker: Broker) -> None:
    program = fence.text.replace(HTTP, broker.server).replace(KAFKA, str(broker.running.address))
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_there_are_examples() -> None:
    assert len(all_fences("python", "snapshots")) == 4
