import pytest
from tests.broker.admin_stage import Stage, run
from tests.topics.stage import Fault, make

from lakelog.model.errors import ErrorCode
from lakelog.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((), [("a", 2), ("b", 2), ("1", 4), ("2", 4), ("1", 8), ("2", 8)]),
        ((2,), [("a", 2), ("b", 2)]),
        ((4, 4), [("1", 4), ("2", 4)]),
        ((16, 32), []),
    ],
)
def test_resources_are_listed_by_type(types: tuple[int, ...], expected: list[object]) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.broker(2)
        scene = await stage.broker(1)
        for name in ("b", "a"):
            await make(scene.broker.topics, name)
        found = await scene.ask(ListConfigResourcesRequest(types), ListConfigResourcesResponse, 1)
        listed = [(item.resource_name, item.resource_type) for item in found.config_resources]
        assert (found.error_code, listed) == (ErrorCode.NONE, expected)

    run(scenario)


def test_an_unknown_type_is_unsupported_and_version_0_lists_client_metrics() -> None:
    async def scenario(stage: Stage) -> None:
        scene = await stage.broker()
        unknown = await scene.ask(
            ListConfigResourcesRequest((2, 3)), ListConfigResourcesResponse, 1
        )
        assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION
        old = await scene.ask(ListConfigResourcesRequest(), ListConfigResourcesResponse, 0)
        assert (old.error_code, old.config_resources) == (ErrorCode.NONE, ())

    run(scenario)


def test_without_the_store_topics_are_not_called_absent() -> None:
    async def scenario(stage: Stage) -> None:
        scene = await stage.broker()
        taken = scene.steps.taken
        scene.steps.faults = dict.fromkeys(range(taken, taken + 9), Fault.UNAVAILABLE)
        found = await scene.ask(ListConfigResourcesRequest(), ListConfigResourcesResponse, 1)
        assert found.error_code == ErrorCode.REQUEST_TIMED_OUT

    run(scenario)
