"""`lakelog admin`: look inside a running broker, over its HTTP port."""

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Final

import click

from lakelog.cli.conversation import AddressType, json_option
from lakelog.cli.output import show, show_json
from lakelog.server.address import Address
from lakelog.server.client import Unreachable

TIMEOUT_S: Final = 30.0
DEFAULT_HTTP: Final = "127.0.0.1:8080"


@click.group()
def admin() -> None:
    """Look inside a running broker."""


@admin.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.option(
    "--http",
    type=AddressType(),
    default=DEFAULT_HTTP,
    show_default=True,
    help="The broker's HTTP port.",
)
@json_option
def index(topic: str, partition: int, http: Address, as_json: bool) -> None:
    """Print a partition's offset index: which bytes of which object hold which offsets.

    \b
      lakelog admin index greetings 0
    """
    query = urllib.parse.urlencode({"topic": topic, "partition": partition})
    found = _asked(http, f"/admin/index?{query}")
    entries = found["entries"]
    assert isinstance(entries, list)
    if as_json:
        show_json(found)
        return
    for entry in entries:
        rest = {name: value for name, value in entry.items() if name != "key"}
        show(f"{entry['key']}  {json.dumps(rest)}")


def _asked(http: Address, path: str) -> dict[str, object]:
    # No proxy of the environment stands between us and a broker that is named by its address.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{http}{path}", timeout=TIMEOUT_S) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            said = refused.read().decode("utf-8", "replace")
        raise click.ClickException(_error_of(said) or f"HTTP {refused.code}") from None
    except (OSError, ValueError) as reason:
        raise Unreachable(
            f"no broker answers at http://{http}: {reason}\nSay where its HTTP port is with --http."
        ) from None
    assert isinstance(found, dict)
    return found


def _error_of(body: str) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return ""
