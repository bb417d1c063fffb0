"""Runs docs/tour.md as it stands; with `--write`, its plots become those of the page.

python -m tests.docs.tour --write
"""

import argparse
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession
from tests.docs.cells import cells, run_cells
from tests.docs.pages import DOCS, ROOT
from tests.lake.running import Broker, running_broker

from lakelog.pipeline.spark.session import SessionStart
from lakelog.pipeline.spark.settings import SparkOptions

PAGE = DOCS / "tour.md"
IMAGES = DOCS / "images"
STEADY = "tour-sessions.svg"
"""The plot that is the same on every machine."""


def run_tour(spark: SparkSession, broker: Broker, folder: Path) -> list[Path]:
    """Run the page in that folder; returns the plots that it drew."""
    broker.create("clicks")
    broker.create("sessions")
    broker.create("ticks", lakelog_table_freshness_ms="2000")
    spark.createDataFrame([], "none int")  # makes the session that of this thread
    shuffles = str(spark.conf.get("spark.sql.shuffle.partitions"))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        with inside(folder), compacting(broker):
            # Java's current folder is another one.
            changes = {"checkpoints/": f"{folder}/checkpoints/"}
            changes["http://127.0.0.1:8080"] = broker.server
            run_cells(cells(PAGE, "tour"), changes)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", shuffles)
    return sorted(folder.glob("*.svg"))


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """The folder as the current one, with the examples to import from."""
    sys.path.insert(0, str(ROOT / "examples"))
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path.remove(str(ROOT / "examples"))


@contextlib.contextmanager
def compacting(broker: Broker) -> Iterator[None]:
    """The pipeline, round after round."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(2):
            with contextlib.suppress(AssertionError):  # a round that was disturbed comes again
                broker.compact()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def main() -> None:
    """Run it with a session and a broker of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help="put the plots into docs/images")
    write = parser.parse_args().write
    with ThreadPoolExecutor(1) as pool:
        session = pool.submit(SessionStart(SparkOptions(master="local[2]")).run).result()
    try:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "tour")
            place.mkdir()
            with running_broker(Path(folder, "data")) as broker:
                drawn = run_tour(session.spark, broker, place)
            if write:
                IMAGES.mkdir(exist_ok=True)
                for one in drawn:
                    (IMAGES / one.name).write_text(one.read_text())
    finally:
        session.close()


if __name__ == "__main__":
    main()
