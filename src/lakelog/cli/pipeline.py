"""`lakelog pipeline`: turn the log into tables, once or for good.

Exit codes: 0 done or told to stop; 1 something is in the way of a topic, and is named; 2 wrong
usage; 130 interrupted before it was done.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from lakelog.cli.command import json_option, show_rows
from lakelog.cli.serve import flags_of, log_to_stderr, loop_factory
from lakelog.clock import Tasks
from lakelog.config.load import load
from lakelog.config.options import Options

FLAGS: Final = {
    "data": "broker.data",
    "interval": "pipeline.interval_s",
    "master": "pipeline.master",
    "remote": "pipeline.remote",
    "server": "pipeline.server",
}
INTERRUPTED: Final = 130


@click.command()
@click.option("--once", is_flag=True, help="Compact what is there now, say what was done, end.")
@click.option(
    "--interval",
    metavar="SECONDS",
    help="From the beginning of a round to that of the next.  [default: 1]",
)
@click.option(
    "--master", help="Where Spark runs: local[N], spark://…, k8s://….  [default: local[*]]"
)
@click.option("--remote", metavar="URL", help="A server of Spark Connect: sc://HOST:PORT.")
@click.option(
    "--server",
    metavar="URL",
    help="A broker's HTTP port: http://HOST:PORT.  [default: any that the metadata store knows]",
)
@click.option("--data", metavar="DIR", help="Where the brokers' data lives.  [default: .lakelog]")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    envvar="LAKELOG_CONFIG",
    show_envvar=True,
    help="A TOML file.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other key.")
@click.option("--log-level", default="info", show_default=True, help="debug, info, …")
@click.option("--beside", is_flag=True, hidden=True, help="End when standard input ends.")
@json_option
def pipeline(**given: Any) -> None:
    """Turn the log into tables, with Spark.

    Every topic is a table: records become rows of Parquet files, which the Iceberg catalog names
    and from which brokers serve old records. Needs Java 17 or newer and `lakelog[spark]`. Any
    number of pipelines may run at once, and any may be stopped at any moment.
    """
    if given["once"] and given["interval"] is not None:
        raise click.UsageError("--once and --interval exclude each other")
    if given["master"] is not None and given["remote"] is not None:
        raise click.UsageError("--master and --remote exclude each other")
    environment = os.environ  # noqa: TID251 - the command line hands it to the configuration
    options = load(given["file"], environment, flags_of(given, FLAGS))
    log_to_stderr(given["log_level"])
    check_pipeline(options)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        code = runner.run(_until_stopped(options, given))
    sys.stderr.flush()
    if code:
        raise click.exceptions.Exit(code)


def check_pipeline(options: Options) -> None:
    """Raises `Refused` when a pipeline cannot run here; nothing is opened."""
    from lakelog.pipeline.process import check_stores, spark_options  # noqa: PLC0415 - usage first
    from lakelog.pipeline.spark.session import check_requirements  # noqa: PLC0415 - as above

    environment = os.environ  # noqa: TID251 - Spark is found by the environment
    check_requirements(spark_options(options), environment)
    check_stores(options)


def command_beside(given: Mapping[str, Any], server: str) -> list[str]:
    """The command of a pipeline with the configuration of the broker that it runs beside."""
    command = [sys.executable, "-m", "lakelog.cli.main", "pipeline", "--beside"]
    command += ["--server", server, "--log-level", given["log_level"]]
    if given["file"] is not None:
        command += ["--config", str(given["file"])]
    if given["data"] is not None:
        command += ["--data", given["data"]]
    for setting in given["settings"]:
        command += ["--set", setting]
    return command


async def _until_stopped(options: Options, given: Mapping[str, Any]) -> int:
    """Run; a signal, or the end of standard input where that counts, cancels everything."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if given["beside"]:
        await loop.connect_read_pipe(lambda: _Ends(stop), sys.stdin)
    tasks = Tasks()
    running = tasks.spawn(_run(options, given), name="pipeline")
    waiting = tasks.spawn(stop.wait(), name="stop")
    try:
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        with contextlib.suppress(Exception):  # what failed is raised below
            await tasks.close()
    if running.cancelled():
        return INTERRUPTED if given["once"] else 0
    code: int = running.result()
    return code


class _Ends(asyncio.Protocol):
    """Hears standard input end: whoever started us is gone."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def connection_lost(self, exc: Exception | None) -> None:
        """It ended."""
        del exc
        self._stop.set()


async def _run(options: Options, given: Mapping[str, Any]) -> int:
    from lakelog.cli import pipeline_progress as progress  # noqa: PLC0415 - wrong usage fails first
    from lakelog.pipeline import process  # noqa: PLC0415 - as above

    once = given["once"]
    display: progress.Display = (
        progress.Bars() if sys.stderr.isatty() else progress.Lines() if once else progress.Events()
    )
    section = options.pipeline
    async with contextlib.AsyncExitStack() as stack:
        opening = process.open_pipeline(options, display, until_now=once)
        with display.starting(section.remote or section.master):
            running = await stack.enter_async_context(opening)
        if not once:
            await process.run_rounds(running, interval_s=section.interval_s, heard=display.heard)
        totals = await process.catch_up(running, heard=display.heard)
    show_rows(
        progress.COLUMNS,
        progress.summary(totals.topics, as_json=given["as_json"]),
        as_json=given["as_json"],
    )
    for one in totals.all_obstacles:
        click.echo(progress.obstacle_line(one), err=True)
    return 1 if totals.all_obstacles else 0
