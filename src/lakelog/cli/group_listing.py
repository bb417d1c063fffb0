"""All groups of a cluster: every broker is asked for its own, and the answers are joined.

A group that is just moving may be told by two brokers: it is listed once. A broker that does not
answer is named, and the others' groups are listed all the same.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lakelog.cli.cluster import Cluster, Node, patiently
from lakelog.cli.conversation import check
from lakelog.model.errors import ErrorCode
from lakelog.server.client import Client, KafkaFailure, Unreachable
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
    "NotReady",
)
TYPES: Final = ("classic", "consumer", "share", "streams")
STATES_SINCE: Final = 4
TYPES_SINCE: Final = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which groups to list; without states or types, those of all."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """What one broker answered: its groups, or why there are none."""

    node: Node
    groups: tuple[ListedGroup, ...] = ()
    failure: str = ""


async def list_groups(cluster: Cluster, wanted: Wanted) -> list[Listing]:
    """Ask every broker of the cluster."""
    nodes = await cluster.nodes()
    return list(await asyncio.gather(*(_listed(cluster, node, wanted) for node in nodes)))


def joined(listings: Iterable[Listing]) -> list[dict[str, object]]:
    """One row for each group, by name."""
    found: dict[str, dict[str, object]] = {}
    for listing in listings:
        for each in listing.groups:
            row: dict[str, object] = {
                "group": each.group_id,
                "state": each.group_state or None,
                "type": each.group_type or None,
                "protocol": each.protocol_type or None,
                "coordinator": listing.node.id,
                "address": str(listing.node.address),
            }
            found.setdefault(each.group_id, row)
    return [found[group] for group in sorted(found)]


async def _listed(cluster: Cluster, node: Node, wanted: Wanted) -> Listing:
    try:
        client = await cluster.client(node)
        return Listing(node, await patiently(lambda: _ask(client, wanted)))
    except Unreachable as reason:
        return Listing(node, failure=str(reason))
    except KafkaFailure as reason:
        return Listing(node, failure=f"broker {node.id}: {reason}")


async def _ask(client: Client, wanted: Wanted) -> tuple[ListedGroup, ...]:
    version = client.version(ApiKey.LIST_GROUPS)
    # A broker that does not know a filter lists everything, which is not what was asked for.
    if (wanted.states and version < STATES_SINCE) or (wanted.types and version < TYPES_SINCE):
        raise KafkaFailure(ErrorCode.UNSUPPORTED_VERSION, "it cannot filter groups like that")
    answer = await client.call(ListGroupsRequest(wanted.states, wanted.types), ListGroupsResponse)
    check(answer.error_code, about="ListGroups")
    return answer.groups
