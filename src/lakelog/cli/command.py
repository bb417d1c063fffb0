"""What commands share: their options, how they ask a broker over either port, what they print.

A command runs its own loop and hangs up at its end. Results go to standard output, as tables for
people and as JSON for programs.

Every command that asks a Kafka cluster takes `--bootstrap-server` and a properties file as Kafka's
own clients take it. What is said on the command line comes before what the file says, and that
before the environment.
"""

import asyncio
import contextlib
import functools
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.kafka_client.admin import TopicPartition
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.failures import BadConfig, BrokerError, Unreachable
from lakelog.kafka_client.setting_keys import endpoints
from lakelog.kafka_client.settings import ClientSettings, librdkafka_names, parse_properties
from lakelog.server.options import Address

GAP = "  "


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows in columns, as wide as they need to be."""
    texts = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(head))]
    lines = (
        GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in texts
    )
    return "\n".join(lines)


def show(text: str) -> None:
    """Print a line as UTF-8, whatever the terminal thinks it is."""
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.buffer.flush()


def show_json(value: object) -> None:
    """Print a value as indented JSON."""
    show(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def show_rows(head: Sequence[str], rows: Sequence[Mapping[str, object]], *, as_json: bool) -> None:
    """Print rows as a table with these columns, or all they hold as JSON."""
    if as_json:
        show_json(list(rows))
        return
    show(table([name.upper() for name in head], [[row[name] for name in head] for row in rows]))


def partition_text(at: TopicPartition) -> str:
    """A partition as messages name it."""
    return f"{at.topic}, partition {at.partition}"


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def json_option(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


# --- the Kafka port ---------------------------------------------------------------------------

DEFAULT_BROKER: Final = "127.0.0.1:9092"
FILE_NAMES: Final = ("--config", "--command-config")
DEFAULTS: Final = {
    "client.id": "lakelog-cli",
    "default.api.timeout.ms": 15_000,
    # As Kafka's console consumer: what is in the log is shown.
    "isolation.level": "read_uncommitted",
}
"""What a command says to the client where the file says nothing."""

ClientConfig: TypeAlias = Mapping[str, object]
"""What the Kafka client is told, by librdkafka's names."""


class ServersType(click.ParamType[str]):
    """`host:port,...` on the command line."""

    name = "host:port,..."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Read the addresses, or say how they are written."""
        try:
            endpoints(value)
        except ValueError as reason:
            self.fail(str(reason), param, ctx)
        return str(value)


def kafka_options(
    *file_names: str, is_needed: bool = True
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """`--bootstrap-server` and `--config`: what they say is the argument `kafka`, a ClientConfig.

    `file_names` are other names of `--config`, for commands where that means something else. Where
    no cluster is needed, `kafka` is None if nothing is said about one.
    """
    default = DEFAULT_BROKER if is_needed else None

    def decorate(command: Callable[..., Result]) -> Callable[..., Result]:
        @functools.wraps(command)
        def told(*given: Any, servers: str | None, properties: Path | None, **named: Any) -> Result:
            kafka = None
            if servers is not None or properties is not None:
                kafka = client_config(servers, properties)
            return command(*given, kafka=kafka, **named)

        with_file = click.option(
            *(file_names or FILE_NAMES),
            "properties",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="A client's properties: security.protocol, sasl.mechanism, …",
        )(told)
        return click.option(
            *("--bootstrap-server", "-b", "servers"),
            type=ServersType(),
            default=default,
            envvar="LAKELOG_BOOTSTRAP_SERVER" if is_needed else None,
            show_default=is_needed,
            show_envvar=is_needed,
            help="Where brokers listen." if is_needed else "Ask a broker instead of this program.",
        )(with_file)

    return decorate


def client_config(servers: str | None, file: Path | None) -> ClientConfig:
    """What the client of this command is told; BadConfig if it cannot be."""
    if file is None:
        return {"bootstrap.servers": servers}
    source = click.get_current_context().get_parameter_source("servers")
    text = _text_of(file)
    try:
        config, ignored = librdkafka_names(parse_properties(text))
        written = config.pop("metadata.broker.list", None)
        if source is ParameterSource.COMMANDLINE:
            config["bootstrap.servers"] = servers
        else:
            config.setdefault("bootstrap.servers", written or servers)
        settings = ClientSettings.parse(config)
    except BadConfig as wrong:
        raise BadConfig(f"{file}: {wrong.key}", wrong.reason) from None
    meaningless = ", ".join(sorted((*ignored, *settings.ignored)))
    if meaningless:
        click.echo(f"{file}: without a meaning here: {meaningless}", err=True)
    return config


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as reason:
        raise BadConfig(
            f"--config {file}", f"cannot be read: {reason.strerror or reason}"
        ) from None
    except UnicodeDecodeError:
        raise BadConfig(f"--config {file}", "is no UTF-8 text") from None


@contextlib.asynccontextmanager
async def open_cluster(config: ClientConfig) -> AsyncIterator[KafkaCluster]:
    """A cluster that was found, for as long as it is entered."""
    settings = ClientSettings.parse({**DEFAULTS, **config})
    cluster = KafkaCluster(settings, clock=SystemClock(), entropy=SystemEntropy())
    try:
        try:
            # Whoever waits at a terminal hears at once that nobody is there.
            await cluster.start(failures_max=1)
        except Unreachable as reason:
            raise Unreachable(_with_hint(str(reason))) from None
        yield cluster
    finally:
        await cluster.close()


def converse(config: ClientConfig, talk: Callable[[KafkaCluster], Awaitable[Result]]) -> Result:
    """Find the cluster, talk, hang up everywhere."""

    async def conversation() -> Result:
        async with open_cluster(config) as cluster:
            return await talk(cluster)

    return asyncio.run(conversation())


def check(code: int, message: str | None = None, *, about: str) -> None:
    """Raise the error that a broker answered with, if it did."""
    if code:
        raise BrokerError(code, about, message)


def _with_hint(reason: str) -> str:
    """What to do about it, unless the reason says so: which setting may be wrong."""
    if reason.endswith("?") or "security.protocol" in reason:
        return reason
    return (
        f"{reason}. Is a broker running there? Start one with `lakelog up`,"
        " or say where it is with --bootstrap-server."
    )


# --- the HTTP port ----------------------------------------------------------------------------

TIMEOUT_S: Final = 30.0
DEFAULT_HTTP: Final = "127.0.0.1:8080"


class AddressType(click.ParamType[Address]):
    """`host:port` on the command line."""

    name = "host:port"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Address:
        """Read the address, or say how it is written."""
        if isinstance(value, Address):
            return value
        try:
            return Address.parse(str(value))
        except ValueError as reason:
            self.fail(str(reason), param, ctx)


def http_option(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`--http`."""
    return click.option(
        "--http",
        type=AddressType(),
        default=DEFAULT_HTTP,
        show_default=True,
        help="The broker's HTTP port.",
    )(command)


def asked(http: Address, path: str) -> object:
    """The JSON at that path; what a broker refuses is told in its own words."""
    import urllib.error  # noqa: PLC0415 - slow, and most commands ask no HTTP port
    import urllib.request  # noqa: PLC0415 - slow, and most commands ask no HTTP port

    # No proxy of the environment stands between us and a broker that is named by its address.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{http}{path}", timeout=TIMEOUT_S) as answer:
            found: object = json.load(answer)
            return found
    except urllib.error.HTTPError as refused:
        with refused:
            said = refused.read().decode("utf-8", "replace")
        raise click.ClickException(_error_of(said) or f"HTTP {refused.code}") from None
    except (OSError, ValueError) as reason:
        raise Unreachable(
            f"no broker answers at http://{http}: {reason}\nSay where its HTTP port is with --http."
        ) from None


def _error_of(body: str) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return ""


file_option = click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    envvar="LAKELOG_CONFIG",
    show_envvar=True,
    help="A TOML file.",
)
