"""`lakelog serve` and `lakelog up`: run a broker until it is told to stop.

When it serves, `up` prints every address, and lines to paste.
"""

import asyncio
import contextlib
import logging
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import click

from lakelog import __version__
from lakelog.clock import SystemClock
from lakelog.config.keys import Raw
from lakelog.config.load import load
from lakelog.config.options import Options
from lakelog.server.options import Address
from lakelog.telemetry import JsonLines, PlainFormatter

TOPIC: Final = "greetings"


def box(lines: Sequence[str]) -> str:
    """The lines in a frame."""
    width = max(len(line) for line in lines)
    edge = "─" * (width + 2)
    inside = "\n".join(f"│ {line.ljust(width)} │" for line in lines)
    return f"╭{edge}╮\n{inside}\n╰{edge}╯"


def banner(  # noqa: PLR0913 - one for each line
    *,
    version: str,
    kafka: str,
    http: str | None,
    metadata: str,
    objects: str,
    took_s: float,
    pipeline: bool = False,
) -> str:
    """The box and the paste-ready lines."""
    lines = [
        f"Lakelog {version}   ready in {took_s:.2f} s",
        "",
        f"Kafka     {kafka}",
        f"HTTP      http://{http}/readyz  /metrics" if http else "HTTP      off",
        f"Metadata  {metadata}",
        f"Objects   {objects}",
        f"Pipeline  {'starts now, beside' if pipeline else 'off'}",
        "",
        "Press Ctrl+C to stop; the data stays.",
    ]
    own = "" if kafka.endswith(":9092") and kafka.startswith("127.0.0.1") else f" -b {kafka}"
    python = (
        f'python -c "from confluent_kafka import Producer;'
        f" p = Producer({{'bootstrap.servers': '{kafka}'}});"
        f" p.produce('{TOPIC}', 'hello from Python'); p.flush()\""
    )
    java = f"--bootstrap-server {kafka} --topic {TOPIC} --partition 0 --offset earliest"
    pasted = [
        "Try it, in another terminal:",
        "",
        f"  echo hello | lakelog records produce {TOPIC}{own}",
        f"  lakelog records consume {TOPIC} --offset :end{own}",
        "",
        f"  echo hello | kcat -b {kafka} -t {TOPIC} -P",
        f"  kcat -b {kafka} -t {TOPIC} -C -e",
        "",
        f"  {python}",
        "",
        f"  kafka-console-producer.sh --bootstrap-server {kafka} --topic {TOPIC}",
        f"  kafka-console-consumer.sh {java}",
    ]
    return "\n".join([box(lines), "", *pasted, ""])


def open_to_all(address: str) -> str:
    """The warning when others can reach a broker that asks nobody who he is."""
    return (
        f"WARNING: {address} can be reached from other machines, and this broker asks nobody who"
        " he is:\n"
        "         everyone who can connect may read, write and delete everything.\n"
        "         Listen on 127.0.0.1, or put a firewall in front of it."
    )


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

FLAGS = {
    "listen": "broker.listen",
    "advertise": "broker.advertised",
    "http": "http.listen",
    "data": "broker.data",
    "broker_id": "broker.id",
    "zone": "broker.zone",
    "accept_lost_metadata": "domain.accept_lost_metadata",
}


def broker_options(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The options that both commands take; unset ones come from file, environment or default."""
    for option in (
        click.option("--log-level", default="info", show_default=True, help="debug, info, …"),
        click.option(
            "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other key."
        ),
        click.option(
            "--config",
            "file",
            type=click.Path(path_type=Path),
            envvar="LAKELOG_CONFIG",
            show_envvar=True,
            help="A TOML file.",
        ),
        click.option(
            "--accept-lost-metadata",
            is_flag=True,
            default=None,
            help="Start although the metadata is older than the objects: for this start only.",
        ),
        click.option("--zone", help="The zone this broker is in."),
        click.option("--broker-id", help="This broker's number in the cluster.  [default: 1]"),
        click.option("--data", metavar="DIR", help="Where data lives.  [default: .lakelog]"),
        click.option(
            "--http",
            metavar="HOST:PORT",
            help="Health and metrics; empty for none.  [default: 127.0.0.1:8080]",
        ),
        click.option(
            "--advertise",
            metavar="HOST:PORT",
            help="What clients are told to connect to.  [default: the address they came to]",
        ),
        click.option(
            "--listen",
            metavar="HOST:PORT",
            help="Where Kafka clients connect.  [default: 127.0.0.1:9092]",
        ),
    ):
        command = option(command)
    return command


@click.command()
@broker_options
def serve(**given: Any) -> None:
    """Run a broker.

    Every option can also stand in a TOML file (--config) or in the environment
    (LAKELOG_SECTION__KEY); `lakelog config show` lists all keys.
    """
    _run(given, friendly=False)


@click.command()
@broker_options
@click.option(
    "--pipeline/--no-pipeline",
    default=True,
    show_default=True,
    help="Turn topics into tables, in a process beside; needs Java and lakelog[spark].",
)
def up(**given: Any) -> None:
    """Start a broker on this machine, ready to use.

    Needs nothing but this package: metadata in SQLite, objects in a directory, both under
    ./.lakelog. What you write stays there when it stops.
    """
    _run(given, friendly=True)


def _run(given: Mapping[str, Any], *, friendly: bool) -> None:
    began_s = time.perf_counter()
    options = load(
        given["file"],
        os.environ,  # noqa: TID251 - the command line hands the environment to the configuration
        flags_of(given),
    )
    log_to_stderr(given["log_level"])
    _allow_many_files()
    from lakelog.cli.compose import RunningBroker, run_broker  # noqa: PLC0415 - wrong options fail first

    def announce(running: RunningBroker) -> None:
        if not running.address.is_loopback():
            click.echo(open_to_all(str(running.address)), err=True)
        if friendly:
            click.echo(
                banner(
                    version=__version__,
                    kafka=str(_dialled(running.address, options)),
                    http=str(running.http) if running.http else None,
                    metadata=running.metadata_url,
                    objects=running.objects_url,
                    pipeline=beside is not None and running.http is not None,
                    took_s=time.perf_counter() - began_s,
                )
            )

    beside = partial(_pipeline_beside, options, given) if given.get("pipeline") else None
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run_broker(options, announce, beside))


async def _pipeline_beside(options: Options, given: Mapping[str, Any], http: Address) -> None:
    """Keep a pipeline running for the broker with that HTTP port."""
    from lakelog.cli.pipeline import check_pipeline, command_beside  # noqa: PLC0415 - the broker first
    from lakelog.pipeline.child_process import keep_child_running  # noqa: PLC0415 - as above

    shown = Address("127.0.0.1", http.port) if http.is_every_interface() else http
    command = command_beside(given, f"http://{shown}")
    await keep_child_running(command, partial(check_pipeline, options), SystemClock())


def flags_of(given: Mapping[str, Any], flags: Mapping[str, str] = FLAGS) -> dict[str, Raw]:
    """The keys that were set on the command line, by the flags that stand for a key."""
    found: dict[str, Raw] = {
        key: given[flag] for flag, key in flags.items() if given.get(flag) is not None
    }
    for setting in given["settings"]:
        key, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"--set {setting!r} is no KEY=VALUE")
        found[key] = value
    return found


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed, else asyncio's own loop."""
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 - it is not there on every platform

        factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
        return factory
    return None


def _dialled(address: Address, options: Options) -> Address:
    """The address that a client on this machine can use."""
    if options.broker.advertised is not None:
        return options.broker.advertised
    return Address("127.0.0.1", address.port) if address.is_every_interface() else address


def log_to_stderr(level: str) -> None:
    """Have events written there: for people at a terminal, else as JSON."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise click.UsageError(f"--log-level {level!r}: use debug, info, warning or error")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter() if sys.stderr.isatty() else JsonLines())
    logging.basicConfig(level=number, handlers=[handler], force=True)
    for chatty in ("uvicorn", "py4j", "pyiceberg"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _allow_many_files() -> None:
    """Each client takes a file descriptor; shells often allow 1,024 where the system has more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
