"""How a command talks to a broker: the options it takes, the connection, the loop it runs in."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, ParamSpec, TypeVar

import click

from lakelog.server.client import Client, KafkaFailure, Unreachable
from lakelog.server.options import Address

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
