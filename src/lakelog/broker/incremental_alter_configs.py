"""IncrementalAlterConfigs (44), versions 0 to 1.

SET, DELETE, and on lists APPEND and SUBTRACT, which start from what is in effect where a resource
sets nothing; no config of a group is a list. One key twice, a null value or an unknown operation is
42, an unknown key or APPEND to what is no list 40; groups and brokers may DELETE what is unknown,
as in Kafka. Loggers and client metrics are 42; see `config_resources`.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.broker.config_resources import (
    Alteration,
    ResourceType,
    alter_each,
    check_names,
)
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
    from lakelog.broker.call import Broker


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
    responses = await alter_each(
        broker,
        call,
        request.resources,
        lambda resource: _changes(resource, *_ground(broker, resource)),
        response=IncrementalAlterConfigsResourceResponse,
        validate_only=request.validate_only,
    )
    return IncrementalAlterConfigsResponse(responses=responses)


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


API: Final = Endpoint(ApiKey.INCREMENTAL_ALTER_CONFIGS, range(2), handle)
