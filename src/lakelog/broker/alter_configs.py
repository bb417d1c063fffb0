"""AlterConfigs (33), versions 0 to 2.

Replaces all configs of a topic, group or broker by those of the request, so it is deprecated for
IncrementalAlterConfigs. Other resources are 42; see `alteration`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Deadline, Endpoint, Fault
from lakelog.broker.config_resources import TWICE, Alteration, alter, check_names, repeated
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.broker import Broker


async def handle(
    broker: "Broker", call: Call, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace the configs of each resource."""
    deadline = Deadline(broker, call)
    stale = await deadline.attempt(broker.topics.current)
    twice = repeated((found.resource_type, found.resource_name) for found in request.resources)
    responses = []
    async for part in broker.loop_turn.parts(request.resources):
        for asked in part:
            resource = (asked.resource_type, asked.resource_name)
            fault = TWICE if resource in twice else stale
            if fault is None:
                fault = await alter(
                    broker,
                    deadline,
                    resource,
                    _replacement(asked),
                    validate_only=request.validate_only,
                )
            responses.append(_response(asked, fault))
    return AlterConfigsResponse(responses=tuple(responses))


def _replacement(asked: AlterConfigsResource) -> Alteration:
    def replace(_: Mapping[str, str]) -> dict[str, str]:
        check_names((config.name, config.value) for config in asked.configs)
        return {config.name: config.value or "" for config in asked.configs}

    return replace


def _response(asked: AlterConfigsResource, fault: Fault | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if fault is None else fault.code,
        error_message=None if fault is None else fault.message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )


API: Final = Endpoint(ApiKey.ALTER_CONFIGS, range(3), handle)
