"""IncrementalAlterConfigs (44), versions 0 to 1.

SET, DELETE, and on lists APPEND and SUBTRACT, which start from what is in effect where a resource
sets nothing; no config of a group is a list. One key twice, a null value or an unknown operation is
42, an unknown key or APPEND to what is no list 40; groups and brokers may DELETE what is unknown,
as in Kafka. Loggers and client metrics are 42; see `alteration`.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Deadline, Endpoint, Fault
from lakelog.broker.config_resources import (
    TWICE,
    Alteration,
    ResourceType,
    alter,
    check_names,
    repeated,
)
from lakelog.model.errors import ErrorCode
from lakelog.topics.broker_configs import DEFINITIONS as BROKER_DEFINITIONS
from lakelog.topics.config_values import ConfigType, show
from lakelog.topics.configs import DEFINITIONS, Definition
from lakelog.topics.failures import InvalidChange, InvalidConfig
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.broker import Broker


class Operation(IntEnum):
    """What to do with one config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(
    broker: "Broker", call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change some configs of each resource."""
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
                    _changes(asked, *_ground(broker, asked)),
                    validate_only=request.validate_only,
                )
            responses.append(_response(asked, fault))
    return IncrementalAlterConfigsResponse(responses=tuple(responses))


def _ground(
    broker: "Broker", asked: IncrementalAlterConfigsResource
) -> tuple[Mapping[str, Definition], Mapping[str, str]]:
    """The configs that a resource may have, and what it gets of them where it sets nothing."""
    match asked.resource_type:
        case ResourceType.TOPIC:
            return DEFINITIONS, broker.topics.defaults
        case ResourceType.BROKER:
            return BROKER_DEFINITIONS, broker.broker_configs.below(asked.resource_name)
        case _:
            return {}, {}


def _changes(
    asked: IncrementalAlterConfigsResource,
    definitions: Mapping[str, Definition],
    defaults: Mapping[str, str],
) -> Alteration:
    def change(configs: Mapping[str, str]) -> dict[str, str]:
        check_names(
            (config.name, "" if config.config_operation == Operation.DELETE else config.value)
            for config in asked.configs
        )
        changed = dict(configs)
        for config in asked.configs:
            if asked.resource_type == ResourceType.TOPIC and config.name not in DEFINITIONS:
                raise InvalidConfig(f"Unknown topic config name: {config.name}")
            _apply(config, changed, definitions, defaults)
        return changed

    return change


def _apply(
    config: IncrementalAlterConfigsAlterableConfig,
    configs: dict[str, str],
    definitions: Mapping[str, Definition],
    defaults: Mapping[str, str],
) -> None:
    name, value = config.name, config.value or ""
    match config.config_operation:
        case Operation.SET:
            configs[name] = value
        case Operation.DELETE:
            configs.pop(name, None)
        case Operation.APPEND | Operation.SUBTRACT as operation:
            definition = definitions.get(name)
            if definition is None or definition.type is not ConfigType.LIST:
                raise InvalidConfig(
                    f"Can't {Operation(operation).name} to key {name} because its type is not LIST."
                )
            present = configs.get(name, defaults.get(name, show(definition.default)))
            configs[name] = _list(present, value, appending=operation == Operation.APPEND)
        case _:
            raise InvalidChange(f"Unknown operations type {config.config_operation}")


def _list(present: str, value: str, *, appending: bool) -> str:
    parts = dict.fromkeys(part for part in present.split(",") if part)
    for part in value.split(","):
        if appending:
            parts.setdefault(part)
        else:
            parts.pop(part, None)
    return ",".join(parts)


def _response(
    asked: IncrementalAlterConfigsResource, fault: Fault | None
) -> IncrementalAlterConfigsResourceResponse:
    return IncrementalAlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if fault is None else fault.code,
        error_message=None if fault is None else fault.message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )


API: Final = Endpoint(ApiKey.INCREMENTAL_ALTER_CONFIGS, range(2), handle)
