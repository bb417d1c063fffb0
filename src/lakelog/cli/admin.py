"""`lakelog admin`: look inside a running broker, and see to the clock of a data directory."""

import json
import os
import urllib.parse
from datetime import UTC, datetime
from pathlib import Path

import click

from lakelog.cli.conversation import json_option
from lakelog.cli.http_pages import asked, http_option
from lakelog.cli.output import show, show_json
from lakelog.cli.settings import file_option
from lakelog.clock import SystemClock, SystemUptime
from lakelog.config.load import load
from lakelog.objects.local_clock import LocalClock
from lakelog.server.options import Address


@click.group()
def admin() -> None:
    """Look inside a running broker, or see to the clock of a data directory."""


@admin.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@http_option
@json_option
def index(topic: str, partition: int, http: Address, as_json: bool) -> None:
    """Print a partition's offset index: which bytes of which object hold which offsets.

    \b
      lakelog admin index greetings 0
    """
    query = urllib.parse.urlencode({"topic": topic, "partition": partition})
    found = asked(http, f"/admin/index?{query}")
    assert isinstance(found, dict)
    if as_json:
        show_json(found)
        return
    for entry in found["entries"]:
        rest = {name: value for name, value in entry.items() if name != "key"}
        show(f"{entry['key']}  {json.dumps(rest)}")


@admin.command()
@click.option("--accept", is_flag=True, help="The clock is right: delete what is old by it again.")
@click.option("--data", metavar="DIR", help="Where data lives.  [default: .lakelog]")
@file_option
def clock(accept: bool, data: str | None, file: Path | None) -> None:
    """Say whether this machine's clock is believed, where objects are in a directory.

    A clock that jumped ahead is not: nothing old is deleted, until it is right again or accepted.
    Run it on the machine of the broker, which need not be stopped.
    """
    environment = os.environ  # noqa: TID251 - the command line hands it to the configuration
    options = load(file, environment, {} if data is None else {"broker.data": data})
    scheme, _, path = options.objects_url().partition(":")
    if scheme != "file":
        raise click.ClickException("the object store has a clock of its own: set this machine's")
    root = Path(path.removeprefix("//")).resolve()
    if not root.is_dir():
        raise click.ClickException(f"{root}: there is no such directory; name it with --data")
    jump_max_ms = options.objects.clock_jump_max_ms
    judged = LocalClock(str(root), SystemClock(), SystemUptime(), jump_max_ms=jump_max_ms)
    if accept:
        judged.accept()
    skew_ms = judged.skew_ms()
    now = f"{datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if skew_ms:
        show(f"{now} is not believed: it is {-skew_ms // 1000} s ahead of what it should be.")
        raise click.exceptions.Exit(1)
    show(f"{now} is believed.")
