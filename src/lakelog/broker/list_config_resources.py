"""ListConfigResources (74), versions 0 to 1.

Version 0 lists client metrics, of which there are none. Version 1 names the types it wants, an
empty list for all; a type that is unknown is 35. Topics are listed by name, brokers and their
loggers by id, and groups that set something themselves, whether they are there or not.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Deadline, Endpoint
from lakelog.broker.config_resources import ResourceType
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

FIRST_VERSION_WITH_TYPES: Final = 1
_ALL: Final = frozenset(int(kind) for kind in ResourceType)


async def handle(
    broker: "Broker", call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """The resources that can have configs."""
    if call.version < FIRST_VERSION_WITH_TYPES:
        return ListConfigResourcesResponse()
    wanted = frozenset(request.resource_types) or _ALL
    if not wanted <= _ALL:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found: list[ConfigResource] = []
    deadline = Deadline(broker, call)
    if ResourceType.TOPIC in wanted:
        stale = await deadline.attempt(broker.topics.current)
        if stale is not None:
            return ListConfigResourcesResponse(error_code=stale.code)
        found += (
            ConfigResource(topic.name, ResourceType.TOPIC) for topic in broker.topics.cached_all()
        )
    for kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        if kind in wanted:
            found += (ConfigResource(str(node.id), kind) for node in broker.cluster.nodes())
    if ResourceType.GROUP in wanted:
        stale = await deadline.attempt(broker.group_configs.current)
        if stale is not None:
            return ListConfigResourcesResponse(error_code=stale.code)
        found += (
            ConfigResource(group_id, ResourceType.GROUP)
            for group_id in broker.group_configs.group_ids()
        )
    return ListConfigResourcesResponse(config_resources=tuple(found))


API: Final = Endpoint(ApiKey.LIST_CONFIG_RESOURCES, range(2), handle)
