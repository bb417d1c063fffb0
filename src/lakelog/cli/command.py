"""What commands share: their options, how they ask a broker over either port, what they print.

A command runs its own loop and hangs up at its end. Results go to standard output, as tables for
people and as JSON for programs.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import click

from lakelog.server.client import Client, KafkaFailure, Unreachable
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


DEFAULT_BROKER: Final = "127.0.0.1:9092"

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class AddressType(click.ParamType[Address]):
    """`host:port` on the command line."""

    name = "host:port"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Address:
        """Read the address, or say how it is written."""
        if isinstance(value, Address):
            return value
        # Kafka's tools take a list here; any one of them will do.
        try:
            return Address.parse(str(value).split(",")[0])
        except ValueError as reason:
            self.fail(str(reason), param, ctx)


def broker_option(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`-b`, `--bootstrap-server`."""
    return click.option(
        "--bootstrap-server",
        "-b",
        "broker",
        type=AddressType(),
        default=DEFAULT_BROKER,
        envvar="LAKELOG_BOOTSTRAP_SERVER",
        show_default=True,
        show_envvar=True,
        help="Where a broker listens.",
    )(command)


def json_option(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def converse(broker: Address, talk: Callable[[Client], Awaitable[Result]]) -> Result:
    """Connect, talk, hang up."""

    async def conversation() -> Result:
        async with await Client.connect(broker, client_id="lakelog-cli") as client:
            return await talk(client)

    try:
        return asyncio.run(conversation())
    except Unreachable as reason:
        raise Unreachable(
            f"{reason}\nIs a broker running there? Start one with `lakelog up`,"
            " or say where it is with --bootstrap-server."
        ) from None


def check(code: int, message: str | None = None, *, about: str) -> None:
    """Raise the error that a broker answered with, if it did."""
    if code:
        raise KafkaFailure(code, message, about=about)


TIMEOUT_S: Final = 30.0
DEFAULT_HTTP: Final = "127.0.0.1:8080"


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
