"""The pages of the client libraries are true: every block runs and prints what stands below it."""

from datetime import UTC, datetime
from pathlib import Path

from tests.docs.cells import Cell, cells, run_cells
from tests.docs.pages import DOCS
from tests.lake.running import Broker, running_broker

KAFKA = "127.0.0.1:9092"
NOON_MS = int(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp() * 1000)

EVENTS = (
    (1, "clicks", 0, b"ann opens /home"),
    (2, "clicks", 1, b"bob opens /shop"),
    (3, "orders", 0, b"bob buys a pen"),
    (4, "clicks", 0, b"ann opens /shop"),
    (5, "orders", 0, b"ann buys a cup"),
)


def run_page(found: list[Cell], broker: Broker) -> None:
    assert found
    run_cells(found, {KAFKA: str(broker.running.address)})


def test_the_page_of_the_ordered_consumer_is_true(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.create("clicks", 2)
        broker.create("orders", 1)
        for second, topic, partition, value in EVENTS:
            at_ms = NOON_MS + 1000 * second
            broker.produce(topic, [value], partition=partition, first_ms=at_ms)
        run_page(cells(DOCS / "client.md", "client"), broker)


def test_the_page_of_discovery_is_true(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.create("clicks", 5)
        broker.create("orders", 3)
        run_page(cells(DOCS / "discovery.md", "discovery"), broker)
