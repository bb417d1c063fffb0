"""What AlterConfigs and IncrementalAlterConfigs share: which resources can be altered, and how.

Topics, groups and brokers can: groups whether they are there or not; of brokers this one or,
without a name, all together. Loggers and client metrics have no configs that are kept.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from lakelog.broker.administration import Deadline, Fault
from lakelog.broker.config_resources import ResourceType
from lakelog.model.errors import ErrorCode
from lakelog.topics import failures
from lakelog.topics.broker_configs import ALL_BROKERS
from lakelog.topics.failures import InvalidChange, NoSuchTopic
from lakelog.topics.settings import settings

if TYPE_CHECKING:
    from lakelog.broker.broker import Broker

Alteration = Callable[[Mapping[str, str]], dict[str, str]]
"""From the own configs of a resource to what they shall be."""

NAME_SHOWN: Final = 100
"""How many characters of a wrong name are repeated."""

TWICE: Final = Fault(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
_FIXED: Final = {
    ResourceType.BROKER_LOGGER: "The loggers of a broker are set in its configuration file.",
    ResourceType.CLIENT_METRICS: "Client metrics are not served.",
}


def check_names(written: Iterable[tuple[str, str | None]]) -> None:
    """Refuse a config that stands twice, or that has no value."""
    pairs = list(written)
    if len({name for name, _ in pairs}) < len(pairs):
        raise InvalidChange("Error due to duplicate config keys")
    unset = [name for name, value in pairs if value is None]
    if unset:
        raise InvalidChange(f"Null value not supported for : {', '.join(unset)}")


def repeated(resources: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
    """The resources that a request names more than once."""
    return {resource for resource, times in Counter(resources).items() if times > 1}


async def alter(
    broker: "Broker",
    deadline: Deadline,
    resource: tuple[int, str],
    alteration: Alteration,
    *,
    validate_only: bool,
) -> Fault | None:
    """Alter the configs of one resource; the fault to answer, or None."""

    async def work() -> None:
        kind, name = resource
        if kind == ResourceType.BROKER:
            await _alter_broker(broker, name, alteration, validate_only=validate_only)
            return
        if kind not in {ResourceType.TOPIC, ResourceType.GROUP}:
            known = [fixed for fixed in _FIXED if fixed == kind]
            raise InvalidChange(_FIXED[known[0]] if known else f"Unknown resource type {kind}")
        if not name:
            noun = ResourceType(kind).name.lower()
            raise InvalidChange(f"Default {noun} resources are not allowed.")
        if kind == ResourceType.GROUP:
            await broker.group_configs.alter(name, alteration, validate_only=validate_only)
            return
        await _alter_topic(broker, name, alteration, validate_only=validate_only)

    return await deadline.attempt(work)


async def _alter_broker(
    broker: "Broker", name: str, alteration: Alteration, *, validate_only: bool
) -> None:
    if name not in (ALL_BROKERS, str(broker.node_id)):
        raise InvalidChange(
            f"Unexpected broker id, expected {broker.node_id}, but received {name[:NAME_SHOWN]}"
        )
    await broker.broker_configs.alter(name, alteration, validate_only=validate_only)


async def _alter_topic(
    broker: "Broker", name: str, alteration: Alteration, *, validate_only: bool
) -> None:
    failures.check_name(name)
    topic = broker.topics.cached(name)
    if topic is None:
        settings(alteration({}))  # as in Kafka, a wrong config is worse than a wrong topic
        raise NoSuchTopic(f"The topic '{name}' does not exist.")
    await broker.topics.alter(topic, alteration, validate_only=validate_only)
