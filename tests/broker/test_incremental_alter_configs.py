import asyncio

import pytest
from tests.broker.admin_stage import Scene, Stage, run
from tests.topics.stage import Fault, make

from lakelog.broker.config_resources import ResourceType
from lakelog.broker.incremental_alter_configs import Operation
from lakelog.model.errors import ErrorCode
from lakelog.topics.settings import TopicDefaults
from lakelog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

Change = tuple[str, int, str | None]
SET, DELETE, APPEND, SUBTRACT = Operation


def resource(
    *changes: Change, name: str = "orders", kind: int = ResourceType.TOPIC
) -> IncrementalAlterConfigsResource:
    configs = tuple(IncrementalAlterConfigsAlterableConfig(*change) for change in changes)
    return IncrementalAlterConfigsResource(kind, name, configs)


async def alter(
    scene: Scene,
    *resources: IncrementalAlterConfigsResource,
    version: int = 1,
    validate_only: bool = False,
) -> tuple[IncrementalAlterConfigsResourceResponse, ...]:
    request = IncrementalAlterConfigsRequest(resources, validate_only)
    return (await scene.ask(request, IncrementalAlterConfigsResponse, version)).responses


def configs(scene: Scene) -> dict[str, str]:
    topic = scene.broker.topics.cached("orders")
    assert topic is not None
    return dict(topic.configs)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ([("retention.ms", SET, "9")], {"segment.ms": "1", "retention.ms": "9"}),
        ([("segment.ms", DELETE, None)], {}),
        ([("retention.ms", DELETE, "ignored")], {"segment.ms": "1"}),
        ([("cleanup.policy", APPEND, "compact")], {"cleanup.policy": "delete,compact"}),
        ([("cleanup.policy", APPEND, "delete")], {"cleanup.policy": "delete"}),
        ([("cleanup.policy", SUBTRACT, "delete")], {"cleanup.policy": ""}),
        ([("cleanup.policy", SUBTRACT, "compact")], {"cleanup.policy": "delete"}),
    ],
)
def test_changes_are_made(version: int, changes: list[Change], after: dict[str, str]) -> None:
    async def scenario(stage: Stage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders", segment_ms="1")
        (found,) = await alter(scene, resource(*changes), version=version)
        assert (found.error_code, found.error_message) == (ErrorCode.NONE, None)
        kept = {} if changes[0][0] == "segment.ms" else {"segment.ms": "1"}
        assert configs(scene) == {**kept, **after}

    run(scenario)


def test_a_list_starts_from_what_the_broker_gives_topics() -> None:
    async def scenario(stage: Stage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders")
        await alter(scene, resource(("cleanup.policy", APPEND, "delete")))
        assert configs(scene) == {"cleanup.policy": "compact,delete"}

    run(scenario, Stage(defaults=TopicDefaults(cleanup_policy="compact")))


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (resource(("nosuch", SET, "1")), ErrorCode.INVALID_CONFIG),
        (resource(("nosuch", DELETE, None)), ErrorCode.INVALID_CONFIG),
        (resource(("retention.ms", SET, "abc")), ErrorCode.INVALID_CONFIG),
        (resource(("retention.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG),
        (resource(("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST),
        (resource(("retention.ms", 9, "1")), ErrorCode.INVALID_REQUEST),
        (
            resource(("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            resource(("retention.ms", SET, "5"), ("max.message.bytes", SET, "-1")),
            ErrorCode.INVALID_CONFIG,
        ),
        (resource(("retention.ms", SET, "5"), name="x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (resource(("nosuch", SET, "5"), name="x"), ErrorCode.INVALID_CONFIG),
        (resource(name="bad name!"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (resource(name=""), ErrorCode.INVALID_REQUEST),
        (resource(("log.retention.ms", SET, "5"), kind=4, name=""), ErrorCode.INVALID_REQUEST),
        (resource(kind=8, name="1"), ErrorCode.INVALID_REQUEST),
        (resource(kind=16, name="m"), ErrorCode.INVALID_REQUEST),
        (resource(kind=3, name="x"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_bad_change_is_refused_whole_and_the_good_one_beside_it_is_made(
    asked: IncrementalAlterConfigsResource, code: ErrorCode
) -> None:
    async def scenario(stage: Stage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders")
        good = await make(scene.broker.topics, "good")
        bad, fine = await alter(scene, asked, resource(("retention.ms", SET, "9"), name="good"))
        assert bad.error_code == code
        assert bad.error_message
        assert fine.error_code == ErrorCode.NONE
        assert configs(scene) == {}
        changed = scene.broker.topics.cached(good.name)
        assert changed is not None
        assert changed.settings.retention_ms == 9

    run(scenario)


def test_a_resource_that_stands_twice_is_not_altered() -> None:
    async def scenario(stage: Stage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders")
        found = await alter(scene, *(resource(("retention.ms", SET, str(n))) for n in (1, 2)))
        assert [result.error_code for result in found] == [ErrorCode.INVALID_REQUEST] * 2
        assert configs(scene) == {}

    run(scenario)


def test_validation_changes_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders")
        good, *_ = await alter(scene, resource(("retention.ms", SET, "9")), validate_only=True)
        bad, *_ = await alter(scene, resource(("retention.ms", SET, "x")), validate_only=True)
        assert (good.error_code, bad.error_code) == (0, ErrorCode.INVALID_CONFIG)
        assert configs(scene) == {}

    run(scenario)


def test_two_brokers_that_alter_at_once_lose_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        scenes = [await stage.broker(1), await stage.broker(2)]
        await make(scenes[0].broker.topics, "orders")
        names = ("retention.ms", "retention.bytes", "segment.ms", "flush.ms")
        await asyncio.gather(
            *(
                alter(scenes[number % 2], resource((name, SET, "7")))
                for number, name in enumerate(names)
            )
        )
        for scene in scenes:
            await scene.broker.topics.current()
            assert configs(scene) == dict.fromkeys(names, "7")

    run(scenario)


def test_without_the_store_a_client_is_told_to_come_again() -> None:
    async def scenario(stage: Stage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders")
        taken = scene.steps.taken
        scene.steps.faults = dict.fromkeys(range(taken, taken + 99), Fault.UNAVAILABLE)
        (found,) = await alter(scene, resource(("retention.ms", SET, "9")))
        assert found.error_code == ErrorCode.REQUEST_TIMED_OUT

    run(scenario)


HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"


def group(*changes: Change, name: str = "g") -> IncrementalAlterConfigsResource:
    return resource(*changes, name=name, kind=ResourceType.GROUP)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ([], {SESSION: "50000"}),
        ([(HEARTBEAT, SET, " 6000")], {SESSION: "50000", HEARTBEAT: "6000"}),
        ([(SESSION, SET, "55000")], {SESSION: "55000"}),
        ([(SESSION, DELETE, None)], {}),
        ([(SESSION, DELETE, None), (HEARTBEAT, SET, "6000")], {HEARTBEAT: "6000"}),
        ([("nosuch", DELETE, None)], {SESSION: "50000"}),
    ],
)
def test_groups_are_changed(version: int, changes: list[Change], after: dict[str, str]) -> None:
    async def scenario(stage: Stage) -> None:
        scene = await stage.broker()
        await alter(scene, group((SESSION, SET, "50000")))
        tried = await alter(scene, group(*changes), version=version, validate_only=True)
        assert scene.broker.group_configs.own("g") == {SESSION: "50000"}
        done = await alter(scene, group(*changes), version=version)
        assert tried == done
        assert (done[0].error_code, done[0].error_message) == (ErrorCode.NONE, None)
        assert scene.broker.group_configs.own("g") == after

    run(scenario)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (group((HEARTBEAT, SET, "1")), ErrorCode.INVALID_CONFIG),
        (group((HEARTBEAT, SET, "x")), ErrorCode.INVALID_CONFIG),
        (group(("nosuch", SET, "1")), ErrorCode.INVALID_CONFIG),
        (group(("retention.ms", SET, "1")), ErrorCode.INVALID_CONFIG),
        (group((HEARTBEAT, APPEND, "6000")), ErrorCode.INVALID_CONFIG),
        (group((HEARTBEAT, SUBTRACT, "6000")), ErrorCode.INVALID_CONFIG),
        (group(("nosuch", APPEND, "6000")), ErrorCode.INVALID_CONFIG),
        (group(("cleanup.policy", APPEND, "compact")), ErrorCode.INVALID_CONFIG),
        (group((HEARTBEAT, SET, "6000"), (SESSION, SET, "1")), ErrorCode.INVALID_CONFIG),
        (group((HEARTBEAT, SET, None)), ErrorCode.INVALID_REQUEST),
        (group((HEARTBEAT, 9, "6000")), ErrorCode.INVALID_REQUEST),
        (group((HEARTBEAT, SET, "6000"), (HEARTBEAT, SET, "6000")), ErrorCode.INVALID_REQUEST),
        (group((HEARTBEAT, SET, "6000"), name=""), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_bad_change_of_a_group_is_refused_whole_and_the_good_one_beside_it_is_made(
    asked: IncrementalAlterConfigsResource, code: ErrorCode
) -> None:
    async def scenario(stage: Stage) -> None:
        scene = await stage.broker()
        bad, fine = await alter(scene, asked, group((SESSION, SET, "50000"), name="good"))
        assert bad.error_code == code
        assert bad.error_message
        assert fine.error_code == ErrorCode.NONE
        assert scene.broker.group_configs.group_ids() == ["good"]

    run(scenario)


def test_a_group_and_a_topic_of_one_name_are_two_resources() -> None:
    async def scenario(stage: Stage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders")
        found = await alter(
            scene,
            resource(("retention.ms", SET, "9")),
            group((SESSION, SET, "50000"), name="orders"),
        )
        assert [one.error_code for one in found] == [ErrorCode.NONE, ErrorCode.NONE]
        assert configs(scene) == {"retention.ms": "9"}
        assert scene.broker.group_configs.own("orders") == {SESSION: "50000"}

    run(scenario)
