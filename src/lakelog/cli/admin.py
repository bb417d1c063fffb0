"""`lakelog admin`, `config` and `api-versions`: look inside a broker, its settings and its APIs.

`admin` looks inside a running broker and sees to the clock of a data directory; `config` checks a
configuration and shows where every value comes from; `api-versions` lists what this version speaks,
or what a running broker says it does.
"""

import json
import os
import urllib.parse
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from lakelog.cli.command import (
    ClientConfig,
    asked,
    converse,
    file_option,
    http_option,
    json_option,
    kafka_options,
    show,
    show_json,
    show_rows,
)
from lakelog.clock import SystemClock, SystemUptime
from lakelog.config import keys
from lakelog.config.load import load
from lakelog.config.options import Options
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.objects.local_clock import LocalClock
from lakelog.server.options import Address
from lakelog.wire.apis import ADVERTISED_FROM, APIS, ApiKey

SECRET_WORDS: Final = ("secret", "password", "token", "key_id", "access_key", "sas", "credential")
HIDDEN: Final = "********"


@click.group()
def config() -> None:
    """Check and show the configuration."""


@config.command()
@file_option
def check(file: Path | None) -> None:
    """Say everything that is wrong with a configuration, at once."""
    _loaded(file)
    show("The configuration is right.")


@config.command(name="show")
@file_option
@json_option
def show_command(file: Path | None, as_json: bool) -> None:
    """List every key with its value and where the value comes from."""
    options = _loaded(file)
    rows: list[dict[str, object]] = []
    for key in keys.known().values():
        value = getattr(getattr(options, key.section), key.field)
        if key.is_table:
            rows += [_row(options, f"{key.name}.{entry}", value[entry]) for entry in sorted(value)]
        else:
            rows.append(_row(options, key.name, value))
    show_rows(("key", "value", "source"), rows, as_json=as_json)


def _row(options: Options, name: str, value: object) -> dict[str, object]:
    secret = any(word in name.lower() for word in SECRET_WORDS)
    shown = HIDDEN if secret else "" if value is None else str(value)
    return {"key": name, "value": shown, "source": options.sources.get(name, "default")}


def _loaded(file: Path | None) -> Options:
    environment = os.environ  # noqa: TID251 - the command line hands it to the configuration
    return load(file, environment, {})


@click.command(name="api-versions")
@kafka_options(is_needed=False)
@json_option
def api_versions(kafka: ClientConfig | None, as_json: bool) -> None:
    """List the Kafka APIs and the versions of each."""
    if kafka is None:
        from lakelog.broker.api import advertised  # noqa: PLC0415 - only needed here, and large
        from lakelog.broker.call import BrokerOptions  # noqa: PLC0415 - only needed here

        versions: dict[int, tuple[int, int]] = {
            key: (ADVERTISED_FROM.get(key, APIS[key].versions.start), APIS[key].versions.stop - 1)
            for key in map(ApiKey, advertised(BrokerOptions()))
        }
    else:
        versions = converse(kafka, _asked)
    rows = [
        {
            "key": key,
            "api": APIS[key].name if key in APIS else "?",
            "from": first,
            "to": last,
        }
        for key, (first, last) in sorted(versions.items())
    ]
    show_rows(("key", "api", "from", "to"), rows, as_json=as_json)


async def _asked(cluster: KafkaCluster) -> dict[int, tuple[int, int]]:
    connection = await cluster.any_connection()
    return {key: (found.start, found.stop - 1) for key, found in connection.versions.items()}


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
