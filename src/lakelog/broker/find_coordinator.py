"""FindCoordinator (10), versions 0 to 6.

Any broker serves any group (K9): the one that is named is the group's owner among the brokers that
this client's Metadata shows, so that members of one group meet, and nobody is sent to a broker
that its client would hang up on (row 77). v0 to v3 ask for one key and have errors at the top; an
answer without a node has node -1, host "" and port -1. The first one makes `__consumer_offsets`, as
in Kafka (`broker/lookup.py`). Ignored: nothing.

Key type 0 is a group. Transactions (1) are not served: 53 in v0 to v3, which every client gives up
on, and 42 with a message from v4 on (row 64). Share groups (2) and whatever else: 42.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from lakelog.broker import lookup
from lakelog.broker.call import Call, Endpoint, Fault, check_named, shown_nodes
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.codec import lift, lower
from lakelog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

FIRST_VERSION_WITH_LIST: Final = 4
NO_NODE: Final = -1
NO_PORT: Final = -1

_NO_TRANSACTIONS: Final = "Transactions are not served by this broker."


class KeyType(IntEnum):
    """What a key is the name of."""

    GROUP = 0
    TRANSACTION = 1


async def handle(
    broker: "Broker", call: Call, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Name the broker that members of each group shall talk to."""
    lifted = lift(request, call.version)
    check_named(lifted.coordinator_keys)
    fault = _fault(lifted.key_type, call.version)
    if fault is not None:
        found = tuple(_refused(key, fault) for key in lifted.coordinator_keys)
    else:
        await lookup.ensure_offsets_topic(broker)
        found = await _owners(broker, call, lifted.coordinator_keys)
    return lower(FindCoordinatorResponse(coordinators=found), call.version)


def _fault(key_type: int, version: int) -> Fault | None:
    if key_type == KeyType.GROUP:
        return None
    if key_type == KeyType.TRANSACTION:
        is_old = version < FIRST_VERSION_WITH_LIST
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return Fault(refused if is_old else ErrorCode.INVALID_REQUEST, _NO_TRANSACTIONS)
    return Fault(ErrorCode.INVALID_REQUEST, f"Coordinator type {key_type} is not served.")


def _refused(key: str, fault: Fault) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=NO_NODE,
        port=NO_PORT,
        error_code=fault.code,
        error_message=fault.message,
    )


async def _owners(broker: "Broker", call: Call, keys: tuple[str, ...]) -> tuple[Coordinator, ...]:
    view = broker.cluster.view(call.client_id)
    nodes = {node.id: node for node in shown_nodes(broker, call, view)}
    # Kafka's words for "no error" differ between the two shapes of the answer.
    message = "NONE" if call.version < FIRST_VERSION_WITH_LIST else ""
    found = []
    async for part in broker.loop_turn.parts(keys):
        for key in part:
            node = nodes[view.leader_of_key(key)]
            found.append(Coordinator(key, node.id, node.host, node.port, ErrorCode.NONE, message))
    return tuple(found)


API: Final = Endpoint(ApiKey.FIND_COORDINATOR, range(7), handle)
