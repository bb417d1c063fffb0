"""What is shown of rounds: figures that are right, and each obstacle once."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipeline.files.wal_tasks import Bucket
from tests.pipeline.test_round_report import BAD, IDLE, TOPIC, round_of

from lakelog.cli.pipeline_progress import (
    Bars,
    Events,
    Lines,
    lines_of,
    megabytes,
    obstacle_line,
    summary,
)
from lakelog.pipeline.round_report import Obstacle


def test_sizes_are_in_megabytes_and_something_is_never_nothing() -> None:
    assert [megabytes(size) for size in (0, 1, 1_550_000, 12_345_600_000)] == [
        "0.0",
        "0.1",
        "1.6",
        "12,345.6",
    ]


def test_a_line_for_each_topic_that_got_files() -> None:
    topic = replace(TOPIC, rows=12_345, read_bytes=3_400_000, written_bytes=1_100_000)
    assert lines_of(round_of(IDLE, topic)) == [
        "t: 12,345 rows in 2 files, 3.4 MB read, 1.1 MB written, 1.5 s"
    ]


def test_an_obstacle_is_named_as_closely_as_it_is_known() -> None:
    assert obstacle_line(BAD) == "Problem: topic t, partition 3: corrupt"
    assert obstacle_line(Obstacle("t", -1, "x")) == "Problem: topic t: x"
    assert obstacle_line(Obstacle("", -1, "x")) == "Problem: the pipeline: x"


def test_the_summary_is_for_people_or_exact() -> None:
    (row,) = summary([replace(TOPIC, rows=1000)], as_json=False)
    assert list(row.values()) == ["t", "1,000", "2", "0.1", "0.1", "1.5", "10"]
    (exact,) = summary([replace(TOPIC, obstacles=(BAD,))], as_json=True)
    assert exact["rows"] == 10
    assert json.loads(json.dumps(exact))["problems"] == [{"partition": 3, "reason": "corrupt"}]


def test_an_obstacle_is_told_when_it_appears_and_not_in_every_round(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = Lines()
    hindered = round_of(replace(IDLE, obstacles=(BAD,)))
    for report in (hindered, hindered, round_of(IDLE), hindered):
        lines.heard(report)
    assert capsys.readouterr().err.splitlines() == [obstacle_line(BAD)] * 2


def test_a_log_gets_events(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="lakelog.pipeline")
    events = Events()
    with events.starting("local[2]"):
        pass
    events.heard(round_of(TOPIC, replace(IDLE, topic="u", obstacles=(BAD,))))
    said = [(record.getMessage(), record.__dict__["fields"]) for record in caplog.records]
    assert [name for name, _ in said] == [
        "spark_starting",
        "spark_started",
        "compacted",
        "obstacle",
    ]
    assert said[2][1]["rows"] == 10
    assert said[3][1] == {"topic": "t", "partition": 3, "reason": "corrupt"}


def test_bars_come_with_tasks_and_go_with_the_last(tmp_path: Path) -> None:
    bars = Bars()
    bucket = Bucket(tmp_path)
    first = [bucket.task(number) for number in range(4)]
    more = [bucket.task(number) for number in range(4, 6)]
    bars.began(first)
    progress = bars._progress
    assert progress is not None
    bars.began(more)
    total = sum(task.total or 0 for task in progress.tasks)
    assert sorted(task.description for task in progress.tasks) == ["t0", "t1", "t2"]
    bars.ended(first)
    assert 0 < sum(task.completed for task in progress.tasks) < total
    bars.ended(more)
    assert sum(task.completed for task in progress.tasks) == total
    assert bars._progress is None
    bars.began(first)
    bars.ended(first)
    assert bars._progress is None
