"""What `lakelog pipeline` shows: bars while a round runs, lines about it, and a summary.

Bars need a terminal; a log gets lines. What is in the way is said when it appears or changes, not
in every round.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import click

from lakelog.pipeline.files.file_task import FileTask
from lakelog.pipeline.ports import EngineObserver
from lakelog.pipeline.round_report import Obstacle, RoundReport, TopicReport
from lakelog.telemetry import event

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

COLUMNS: Final = ("topic", "rows", "files", "MB in", "MB out", "seconds", "behind")
MEGABYTE: Final = 1_000_000
log = logging.getLogger("lakelog.pipeline")


class Display(EngineObserver, Protocol):
    """Who shows what happens."""

    def starting(self, where: str) -> contextlib.AbstractContextManager[None]:
        """While Spark starts there."""

    def heard(self, report: RoundReport) -> None:
        """A round ended."""


class NewObstacles:
    """Which obstacles were not told yet."""

    def __init__(self) -> None:
        self._told: frozenset[Obstacle] = frozenset()

    def of(self, report: RoundReport) -> list[Obstacle]:
        """Those of this report that were not in the one before."""
        now = report.all_obstacles
        fresh = [one for one in now if one not in self._told]
        self._told = frozenset(now)
        return fresh


class Bars:
    """For a terminal: a bar for each topic that is worked on, and a line when a round did work."""

    def __init__(self) -> None:
        self._news = NewObstacles()
        self._progress: Progress | None = None
        self._bars: dict[str, TaskID] = {}
        self._tasks = 0

    @contextlib.contextmanager
    def starting(self, where: str) -> Iterator[None]:
        """Something moves while Spark starts."""
        from rich.console import Console  # noqa: PLC0415 - only for a terminal

        with Console(stderr=True).status(f"Starting Spark ({where}) …"):
            yield

    def began(self, tasks: Sequence[FileTask]) -> None:
        """Show the topics of these tasks, or more of them."""
        if self._progress is None:
            self._progress = _progress()
            self._progress.start()
        for topic, size in _sizes(tasks).items():
            if topic not in self._bars:
                self._bars[topic] = self._progress.add_task(topic, total=0)
            bar = self._bars[topic]
            known = self._progress.tasks[self._progress.task_ids.index(bar)]
            self._progress.update(bar, total=(known.total or 0) + size)
        self._tasks += len(tasks)

    def ended(self, tasks: Sequence[FileTask]) -> None:
        """Move the bars; take them away when nothing is left."""
        assert self._progress is not None
        for topic, size in _sizes(tasks).items():
            self._progress.update(self._bars[topic], advance=size)
        self._tasks -= len(tasks)
        if self._tasks == 0:
            self._progress.stop()
            self._progress = None
            self._bars = {}

    def heard(self, report: RoundReport) -> None:
        """A line for each topic that got files, and for each new obstacle."""
        for line in [*lines_of(report), *map(obstacle_line, self._news.of(report))]:
            click.echo(line, err=True)


class Lines(Bars):
    """Without a terminal, but for people: the lines alone."""

    @contextlib.contextmanager
    def starting(self, where: str) -> Iterator[None]:
        """Say that it takes a moment."""
        click.echo(f"starting Spark ({where})", err=True)
        yield

    def began(self, tasks: Sequence[FileTask]) -> None:
        """Nothing is shown of a round that runs."""

    def ended(self, tasks: Sequence[FileTask]) -> None:
        """Nothing is shown of a round that runs."""


class Events:
    """For a log: an event for each topic that got files, and for each new obstacle."""

    def __init__(self) -> None:
        self._news = NewObstacles()

    @contextlib.contextmanager
    def starting(self, where: str) -> Iterator[None]:
        """Two events."""
        event(log, "spark_starting", where=where)
        yield
        event(log, "spark_started", where=where)

    def began(self, tasks: Sequence[FileTask]) -> None:
        """Nothing is logged of a round that runs."""

    def ended(self, tasks: Sequence[FileTask]) -> None:
        """Nothing is logged of a round that runs."""

    def heard(self, report: RoundReport) -> None:
        """Log what the round did and what is in the way."""
        for topic in report.topics:
            if topic.files:
                event(log, "compacted", logging.INFO, **_figures(topic))
        for one in self._news.of(report):
            fields = {"topic": one.topic, "partition": one.partition, "reason": one.reason}
            event(log, "obstacle", logging.WARNING, **fields)


def lines_of(report: RoundReport) -> list[str]:
    """A line for each topic that got files."""
    return [
        f"{topic.topic}: {topic.rows:,} rows in {topic.files:,} files,"
        f" {megabytes(topic.read_bytes)} MB read, {megabytes(topic.written_bytes)} MB written,"
        f" {topic.seconds:.1f} s"
        for topic in report.topics
        if topic.files
    ]


def obstacle_line(one: Obstacle) -> str:
    """What is in the way, and of what."""
    where = f"topic {one.topic}" if one.topic else "the pipeline"
    part = f", partition {one.partition}" if one.partition >= 0 else ""
    return f"Problem: {where}{part}: {one.reason}"


def summary(topics: Sequence[TopicReport], *, as_json: bool) -> list[Mapping[str, object]]:
    """The rows of the summary: for people by `COLUMNS`, for programs with exact figures."""
    if as_json:
        return [{**_figures(one), "problems": _problems(one)} for one in topics]
    return [
        {
            "topic": one.topic,
            "rows": f"{one.rows:,}",
            "files": f"{one.files:,}",
            "MB in": megabytes(one.read_bytes),
            "MB out": megabytes(one.written_bytes),
            "seconds": f"{one.seconds:.1f}",
            "behind": f"{one.behind_records:,}",
        }
        for one in topics
    ]


def megabytes(size_bytes: int) -> str:
    """With one digit behind the point; something is never shown as nothing."""
    return f"{max(size_bytes / MEGABYTE, 0.1) if size_bytes else 0:,.1f}"


def _figures(one: TopicReport) -> dict[str, object]:
    return {
        "topic": one.topic,
        "rows": one.rows,
        "files": one.files,
        "read_bytes": one.read_bytes,
        "written_bytes": one.written_bytes,
        "seconds": round(one.seconds, 3),
        "behind_records": one.behind_records,
        "behind_ms": one.behind_ms,
    }


def _problems(one: TopicReport) -> list[dict[str, object]]:
    return [{"partition": each.partition, "reason": each.reason} for each in one.obstacles]


def _sizes(tasks: Sequence[FileTask]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for task in tasks:
        sizes[task.topic] = sizes.get(task.topic, 0) + task.input_bytes
    return sizes


def _progress() -> "Progress":
    from rich.console import Console  # noqa: PLC0415 - only for a terminal
    from rich.progress import (  # noqa: PLC0415 - as above
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
