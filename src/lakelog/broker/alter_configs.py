"""AlterConfigs (33), versions 0 to 2.

Replaces all configs of a topic, group or broker by those of the request, so it is deprecated for
IncrementalAlterConfigs. Other resources are 42; see `config_resources`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.broker.config_resources import Alteration, alter_each, check_names
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker


async def handle(
    broker: "Broker", call: Call, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace the configs of each resource."""
    responses = await alter_each(
        broker,
        call,
        request.resources,
        _replacement,
        response=AlterConfigsResourceResponse,
        validate_only=request.validate_only,
    )
    return AlterConfigsResponse(responses=responses)


def _replacement(asked: AlterConfigsResource) -> Alteration:
    def replace(_: Mapping[str, str]) -> dict[str, str]:
        check_names((config.name, config.value) for config in asked.configs)
        return {config.name: config.value or "" for config in asked.configs}

    return replace


API: Final = Endpoint(ApiKey.ALTER_CONFIGS, range(3), handle)
