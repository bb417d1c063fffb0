"""The SQL of docs/reading.md, with the results that stand below it."""

from pathlib import Path

from tests.docs.cells import cells, run_cells
from tests.docs.pages import DOCS
from tests.lake.running import running_broker

ORDERS = (
    b'{"item": "pen", "price": 2}',
    b'{"item": "rubber", "price": 1}',
    b'{"item": "pen", "price": 3}',
)


def test_queries_give_what_the_page_says(tmp_path: Path) -> None:
    found = cells(DOCS / "reading.md", "sql")
    assert found
    with running_broker(tmp_path) as broker:
        broker.create("orders", lakelog_table_freshness_ms="0")
        broker.produce("orders", ORDERS[:2])
        broker.compact()
        broker.produce("orders", ORDERS[2:])  # the first key once more
        run_cells(found, {"http://127.0.0.1:8080": broker.server})
