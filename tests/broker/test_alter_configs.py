import pytest
from tests.broker.admin_stage import AdminStage, Scene, run
from tests.topics.stepped_stores import make

from lakelog.broker.config_resources import ResourceType
from lakelog.model.errors import ErrorCode
from lakelog.wire.messages.alter_configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def resource(
    name: str, *configs: tuple[str, str | None], kind: int = ResourceType.TOPIC
) -> AlterConfigsResource:
    return AlterConfigsResource(
        kind, name, tuple(AlterConfigsAlterableConfig(*config) for config in configs)
    )


async def alter(
    scene: Scene, *resources: AlterConfigsResource, version: int = 2, validate_only: bool = False
) -> tuple[AlterConfigsResourceResponse, ...]:
    request = AlterConfigsRequest(resources, validate_only)
    return (await scene.ask(request, AlterConfigsResponse, version)).responses


@pytest.mark.parametrize("version", range(3))
def test_the_whole_set_is_replaced(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders", segment_ms="1", retention_ms="2")
        (found,) = await alter(scene, resource("orders", ("retention.ms", "3")), version=version)
        assert found.error_code == ErrorCode.NONE
        topic = scene.broker.topics.cached("orders")
        assert topic is not None
        assert topic.configs == {"retention.ms": "3"}

    run(scenario)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (resource("orders", ("retention.ms", None)), ErrorCode.INVALID_REQUEST),
        (
            resource("orders", ("retention.ms", "1"), ("retention.ms", "1")),
            ErrorCode.INVALID_REQUEST,
        ),
        (resource("orders", ("nosuch", "1")), ErrorCode.INVALID_CONFIG),
        (resource("other", ("retention.ms", "1")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_bad_set_is_refused_and_the_old_one_kept(
    asked: AlterConfigsResource, code: ErrorCode
) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        made = await make(scene.broker.topics, "orders", segment_ms="1")
        (found,) = await alter(scene, asked)
        assert found.error_code == code
        assert scene.broker.topics.cached("orders") == made

    run(scenario)


def test_validation_changes_nothing() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        made = await make(scene.broker.topics, "orders", segment_ms="1")
        (found,) = await alter(scene, resource("orders"), validate_only=True)
        assert found.error_code == ErrorCode.NONE
        assert scene.broker.topics.cached("orders") == made

    run(scenario)


SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.mark.parametrize("version", range(3))
def test_the_whole_set_of_a_group_is_replaced(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        for change in ((SESSION, "50000"), (HEARTBEAT, "6000")):
            asked = resource("g", change, kind=ResourceType.GROUP)
            (found,) = await alter(scene, asked, version=version)
            assert (found.error_code, found.error_message) == (ErrorCode.NONE, None)
        assert scene.broker.group_configs.own("g") == {HEARTBEAT: "6000"}
        await alter(scene, resource("g", kind=ResourceType.GROUP), version=version)
        assert scene.broker.group_configs.group_ids() == []

    run(scenario)


@pytest.mark.parametrize(
    ("name", "changes", "code"),
    [
        ("g", [(SESSION, None)], ErrorCode.INVALID_REQUEST),
        ("g", [(SESSION, "50000"), (SESSION, "50000")], ErrorCode.INVALID_REQUEST),
        ("", [(SESSION, "50000")], ErrorCode.INVALID_REQUEST),
        ("g", [(SESSION, "1")], ErrorCode.INVALID_CONFIG),
        ("g", [("nosuch", "1")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_bad_set_of_a_group_is_refused(
    name: str, changes: list[tuple[str, str | None]], code: ErrorCode
) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        (found,) = await alter(scene, resource(name, *changes, kind=ResourceType.GROUP))
        assert found.error_code == code
        assert found.error_message
        assert scene.broker.group_configs.group_ids() == []

    run(scenario)


@pytest.mark.parametrize("version", range(3))
def test_the_whole_set_of_a_broker_is_replaced(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        for name, value in (("log.retention.ms", "5"), ("background.threads", "9")):
            asked = resource("1", (name, value), kind=ResourceType.BROKER)
            (found,) = await alter(scene, asked, version=version)
            assert (found.error_code, found.error_message) == (ErrorCode.NONE, None)
        own, _ = scene.broker.broker_configs.altered()
        assert own.configs == {"background.threads": "9"}

    run(scenario)
