"""How a command asks a broker over its HTTP port: the option it takes, and the answer as JSON."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

import click

from lakelog.cli.conversation import AddressType
from lakelog.server.client import Unreachable
from lakelog.server.options import Address

TIMEOUT_S: Final = 30.0
DEFAULT_HTTP: Final = "127.0.0.1:8080"

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


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
