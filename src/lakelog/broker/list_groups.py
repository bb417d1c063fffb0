"""ListGroups (16), versions 0 to 5.

Clients ask every broker and join the answers, some without removing duplicates, so each broker
lists the groups that it owns in this client's view: all together list each group once (row 74).
The filters, states from v4 on and types from v5 on, ignore case; one that is no state or type
matches nothing. The protocol type of a group that has only offsets is "". Ignored: nothing.

The list is told after a proof of currency for every domain; without one the answer is 15.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.broker.lookup import classic_state, is_proved
from lakelog.groups import consumer
from lakelog.groups.state import ConsumerGroup, Group
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""The two types of groups; the second is also the protocol type of all groups of its type."""


async def handle(broker: "Broker", call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the groups that this broker owns."""
    if not await is_proved(broker, call, None):
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    view = broker.cluster.view(call.client_id)
    wanted = _Filter.of(request)
    found = []
    # A copy: groups come and go while others have their turn.
    groups = [group for table in broker.groups.tables() for group in table.groups.values()]
    async for part in broker.loop_turn.parts(groups):
        for group in part:
            listed = _listed(group)
            if wanted.matches(listed) and view.leader_of_key(group.group_id) == broker.node_id:
                found.append(listed)
    return ListGroupsResponse(groups=tuple(found))


@dataclass(frozen=True, slots=True)
class _Filter:
    """Which groups are asked for; an empty set asks for all."""

    states: frozenset[str]
    types: frozenset[str]

    @staticmethod
    def of(request: ListGroupsRequest) -> "_Filter":
        return _Filter(_folded(request.states_filter), _folded(request.types_filter))

    def matches(self, group: ListedGroup) -> bool:
        is_in_states = not self.states or group.group_state.lower() in self.states
        return is_in_states and (not self.types or group.group_type in self.types)


def _folded(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in names)


def _listed(group: Group) -> ListedGroup:
    if isinstance(group, ConsumerGroup):
        return ListedGroup(group.group_id, CONSUMER, consumer.state_name(group), CONSUMER)
    return ListedGroup(group.group_id, group.protocol_type, classic_state(group), CLASSIC)


API: Final = Endpoint(ApiKey.LIST_GROUPS, range(6), handle)
