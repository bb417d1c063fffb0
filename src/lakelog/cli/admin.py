"""`lakelog admin`: look inside a running broker, over its HTTP port."""

import json
import urllib.parse

import click

from lakelog.cli.conversation import json_option
from lakelog.cli.http_pages import asked, http_option
from lakelog.cli.output import show, show_json
from lakelog.server.address import Address


@click.group()
def admin() -> None:
    """Look inside a running broker."""


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
