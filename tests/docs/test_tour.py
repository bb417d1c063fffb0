"""The tour runs as it stands, prints what it says, and draws the plots that it shows."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from examples.plots import bars, lines, ticks
from pyspark.sql import SparkSession
from tests.docs.cells import cells
from tests.docs.tour import IMAGES, PAGE, STEADY, run_tour
from tests.lake.running import running_broker
from tests.spark.conftest import spark

__all__ = ["spark"]


@pytest.mark.proof
@pytest.mark.timeout(400)
def test_the_tour_is_true(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "tour"
    folder.mkdir()
    with running_broker(tmp_path / "data") as broker:
        drawn = run_tour(spark, broker, folder)
    assert [one.name for one in drawn] == sorted(one.name for one in IMAGES.glob("tour-*.svg"))
    assert (folder / STEADY).read_text() == (IMAGES / STEADY).read_text()


def test_every_plot_of_the_page_is_there_and_drawn_by_it() -> None:
    shown = re.findall(r"\]\(images/(.+?)\)", PAGE.read_text())
    code = "".join(cell.code for cell in cells(PAGE, "tour"))
    assert shown
    for name in shown:
        assert f'"{name}"' in code
        ElementTree.parse(IMAGES / name)


def test_plots_stay_within_their_frame(tmp_path: Path) -> None:
    path = tmp_path / "p.svg"
    bars(str(path), [(0, 1), (5, 2.5), (10, 0)], title="a < b", x="x", y="y")
    drawn = [one for one in ElementTree.parse(path).iter() if one.get("fill") == "#1f6feb"]
    assert len(drawn) == 3
    assert max(float(one.attrib["x"]) + float(one.attrib["width"]) for one in drawn) <= 704
    lines(str(path), {"one": [(0, 0), (3, 7)], "two": [(1, 1)]}, title="t", x="x", y="y")
    kinds = [one.tag.rpartition("}")[2] for one in ElementTree.parse(path).iter()]
    assert kinds.count("polyline") == 2


def test_ticks_are_round_and_hold_everything() -> None:
    assert ticks(0, 23.4) == [0, 5, 10, 15, 20, 25]
    assert ticks(3, 3)[0] <= 3 < ticks(3, 3)[-1]
    assert ticks(0, 1234)[-1] == 1500
