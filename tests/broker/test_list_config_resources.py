from collections.abc import Mapping

import pytest
from tests.broker.admin_stage import AdminStage, run
from tests.topics.stepped_stores import Fault, make

from lakelog.model.errors import ErrorCode
from lakelog.topics.group_configs import Alteration
from lakelog.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

CHANGES: Mapping[str, Alteration] = {
    "g": lambda _: {"consumer.session.timeout.ms": "50000"},
    "h": lambda _: {"consumer.heartbeat.interval.ms": "6000"},
    "none": lambda _: {},
}


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (
            (),
            [("a", 2), ("b", 2), ("1", 4), ("2", 4), ("1", 8), ("2", 8), ("g", 32), ("h", 32)],
        ),
        ((2,), [("a", 2), ("b", 2)]),
        ((4, 4), [("1", 4), ("2", 4)]),
        ((16, 32), [("g", 32), ("h", 32)]),
        ((16,), []),
    ],
)
def test_resources_are_listed_by_type(types: tuple[int, ...], expected: list[object]) -> None:
    async def scenario(stage: AdminStage) -> None:
        other = await stage.broker(2)
        scene = await stage.broker(1)
        for name in ("b", "a"):
            await make(scene.broker.topics, name)
        for group in ("h", "g", "none"):
            await other.broker.group_configs.alter(group, CHANGES[group])
        found = await scene.ask(ListConfigResourcesRequest(types), ListConfigResourcesResponse, 1)
        listed = [(item.resource_name, item.resource_type) for item in found.config_resources]
        assert (found.error_code, listed) == (ErrorCode.NONE, expected)

    run(scenario)


def test_an_unknown_type_is_unsupported_and_version_0_lists_client_metrics() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        unknown = await scene.ask(
            ListConfigResourcesRequest((2, 3)), ListConfigResourcesResponse, 1
        )
        assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION
        old = await scene.ask(ListConfigResourcesRequest(), ListConfigResourcesResponse, 0)
        assert (old.error_code, old.config_resources) == (ErrorCode.NONE, ())

    run(scenario)


@pytest.mark.parametrize("types", [(), (2,), (32,)])
def test_without_the_store_nothing_is_called_absent(types: tuple[int, ...]) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        taken = scene.steps.taken
        scene.steps.faults = dict.fromkeys(range(taken, taken + 9), Fault.UNAVAILABLE)
        found = await scene.ask(ListConfigResourcesRequest(types), ListConfigResourcesResponse, 1)
        assert found.error_code == ErrorCode.REQUEST_TIMED_OUT

    run(scenario)
