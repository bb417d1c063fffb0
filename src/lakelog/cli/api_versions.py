"""`lakelog api-versions`: what this version speaks, or what a running broker says it does."""

import click

from lakelog.broker.broker import BrokerOptions
from lakelog.cli.conversation import AddressType, converse, json_option
from lakelog.cli.output import show_rows
from lakelog.server.client import Client
from lakelog.server.options import Address
from lakelog.wire.apis import ADVERTISED_FROM, APIS, ApiKey


@click.command(name="api-versions")
@click.option(
    "--bootstrap-server",
    "-b",
    "broker",
    type=AddressType(),
    help="Ask a running broker instead of this program.",
)
@json_option
def api_versions(broker: Address | None, as_json: bool) -> None:
    """List the Kafka APIs and the versions of each."""
    if broker is None:
        from lakelog.broker.api import advertised  # noqa: PLC0415 - only needed here, and large

        versions: dict[int, tuple[int, int]] = {
            key: (ADVERTISED_FROM.get(key, APIS[key].versions.start), APIS[key].versions.stop - 1)
            for key in map(ApiKey, advertised(BrokerOptions()))
        }
    else:
        versions = converse(broker, _asked)
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


async def _asked(client: Client) -> dict[int, tuple[int, int]]:
    return {key: (found.start, found.stop - 1) for key, found in client.versions.items()}
