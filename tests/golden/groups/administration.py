"""Scripts of what tools ask: coordinators, lists, descriptions, configs."""

from tests.golden.groups.asks import (
    deleted,
    described,
    enter,
    find,
    inspected,
    join,
    leave,
    listed,
    pulse,
)
from tests.golden.groups.members import admitted, alone, knocking
from tests.golden.groups.offset_asks import At, commit
from tests.golden.groups.script import script
from tests.golden.groups.stage import Ask, Stage

from lakelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lakelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from lakelog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from lakelog.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

GROUP_RESOURCE = 32


@script()
async def coordinators_in_every_version(stage: Stage) -> None:
    group = stage.group()
    for version in range(7):
        await stage.ask(find(group, version=version))
        await stage.ask(find("", version=version))
        if version:
            await stage.ask(find(group, version=version, kind=7))
    await stage.ask(find(group, "", stage.group("b"), group))
    await stage.ask(find(group, version=3, kind=-1))


@script()
async def groups_are_listed(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 1)
    await alone(stage, stage.group("stable"))
    await admitted(stage, stage.group("completing"), "b")
    preparing = await alone(stage, stage.group("preparing"), "c")
    await knocking(stage, stage.group("preparing"), preparing, "d")
    gone = await alone(stage, stage.group("empty"), "e")
    await stage.ask(leave(stage.group("empty"), gone.member_id), "e")
    await stage.ask(commit(stage.group("offsets"), -1, "", At(topic, 0, 1)))
    await stage.ask(enter(stage.group("newer"), "one", topic))
    await stage.ask(enter(stage.group("newer-empty"), "one", topic))
    await stage.ask(pulse(stage.group("newer-empty"), "one", -1))
    for version in range(6):
        await stage.ask(listed(version=version))
    for states in (["Stable"], ["stable", "EMPTY"], ["PreparingRebalance"], ["Dead"], ["bogus"]):
        await stage.ask(listed(states=states))
    await stage.ask(listed(states=["completingrebalance"], version=4))
    for types in (["classic"], ["Consumer"], ["consumer", "classic"], ["share"], ["bogus"]):
        await stage.ask(listed(types=types))
    await stage.ask(listed(types=["classic"], states=["Stable"]))
    await stage.ask(listed(states=["Stable", "Reconciling"], types=["consumer"]))
    await stage.ask(listed(states=["", "Stable"]))
    await stage.ask(listed(types=["unknown"]))


@script()
async def groups_are_described_in_every_version(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 1)
    await alone(stage, stage.group("stable"))
    await admitted(stage, stage.group("completing"), "b")
    preparing = await alone(stage, stage.group("preparing"), "c")
    await knocking(stage, stage.group("preparing"), preparing, "d")
    gone = await alone(stage, stage.group("empty"), "e")
    await stage.ask(leave(stage.group("empty"), gone.member_id), "e")
    await stage.ask(commit(stage.group("offsets"), -1, "", At(topic, 0, 1)))
    await stage.ask(enter(stage.group("newer"), "one", topic))
    kinds = ("stable", "completing", "preparing", "empty", "offsets", "newer", "unknown")
    asked = [stage.group(each) for each in kinds]
    for version in range(7):
        await stage.ask(described(*asked, version=version))
    for version in (3, 5, 6):
        await stage.ask(described(*asked, version=version, operations=True))
    await stage.ask(described(version=6))
    await stage.ask(described("", version=6))
    await stage.ask(described(asked[0], asked[0], version=6))
    await stage.ask(inspected(*asked, version=0))
    await stage.ask(inspected(*asked, "", version=1, operations=True))
    await stage.ask(inspected(version=1))


@script()
async def groups_are_deleted(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 1)
    await alone(stage, stage.group("stable"))
    await admitted(stage, stage.group("completing"), "b")
    gone = await alone(stage, stage.group("empty"), "c")
    await stage.ask(leave(stage.group("empty"), gone.member_id), "c")
    await stage.ask(commit(stage.group("offsets"), -1, "", At(topic, 0, 1)))
    await stage.ask(enter(stage.group("newer"), "one", topic))
    await stage.ask(enter(stage.group("newer-empty"), "one", topic))
    await stage.ask(pulse(stage.group("newer-empty"), "one", -1))
    kinds = ("stable", "completing", "empty", "offsets", "newer", "newer-empty", "unknown")
    for version in range(3):
        await stage.ask(deleted(*(stage.group(each) for each in kinds), version=version))
    await stage.ask(listed())
    await stage.ask(deleted(""))
    await stage.ask(deleted())
    await stage.ask(pulse(stage.group("newer-empty"), "one", 1))
    await stage.ask(enter(stage.group("newer-empty"), "one", topic))
    await stage.ask(join(stage.group("empty"), gone.member_id))


@script()
async def versions_of_group_apis(stage: Stage) -> None:
    request = ApiVersionsRequest("golden", "1")
    await stage.ask(Ask(request, ApiVersionsResponse, 4))
    await stage.ask(Ask(request, ApiVersionsResponse, 0))


def described_configs(group: str, *names: str) -> Ask[DescribeConfigsResponse]:
    """The configs of a group, all or these."""
    resource = DescribeConfigsResource(GROUP_RESOURCE, group, names or None)
    return Ask(DescribeConfigsRequest((resource,)), DescribeConfigsResponse, 4)


def altered(group: str, name: str, value: str | None) -> Ask[IncrementalAlterConfigsResponse]:
    """Set a config of a group, or delete it."""
    change = IncrementalAlterConfigsAlterableConfig(name, 1 if value is None else 0, value)
    resource = IncrementalAlterConfigsResource(GROUP_RESOURCE, group, (change,))
    return Ask(IncrementalAlterConfigsRequest((resource,)), IncrementalAlterConfigsResponse, 1)


@script()
async def configs_of_groups(stage: Stage) -> None:
    group = stage.group()
    await stage.ask(described_configs(group))
    await stage.ask(described_configs(""))
    await stage.ask(described_configs(group, "consumer.session.timeout.ms", "no.such.config"))
    await stage.ask(altered(group, "consumer.heartbeat.interval.ms", "6000"))
    await stage.until(
        lambda: described_configs(group, "consumer.heartbeat.interval.ms"),
        lambda found: found.results[0].configs[0].value == "6000",
    )
    await stage.ask(enter(group, "one", "no-such-topic"))
    await stage.ask(altered(group, "consumer.heartbeat.interval.ms", "1"))
    await stage.ask(altered(group, "no.such.config", "1"))
    await stage.ask(altered(group, "consumer.heartbeat.interval.ms", None))


@script()
async def groups_with_configs_are_listed(stage: Stage) -> None:
    group = stage.group()

    def resources(*types: int, version: int = 1) -> Ask[ListConfigResourcesResponse]:
        return Ask(ListConfigResourcesRequest(types), ListConfigResourcesResponse, version)

    await alone(stage, stage.group("live"))
    await stage.ask(resources(GROUP_RESOURCE))
    await stage.ask(altered(group, "consumer.session.timeout.ms", "50000"))
    await stage.until(
        lambda: resources(GROUP_RESOURCE),
        lambda found: any(each.resource_name == group for each in found.config_resources),
    )
    await stage.ask(resources())
    await stage.ask(resources(version=0))
    await stage.ask(resources(99))
