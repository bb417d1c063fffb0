import asyncio

import pytest
from tests.broker.admin_stage import AdminStage, Scene, run
from tests.topics.stepped_stores import Fault, make

from lakelog.broker.config_resources import ResourceType
from lakelog.broker.incremental_alter_configs import Operation
from lakelog.model.errors import ErrorCode
from lakelog.topics.settings import TopicDefaults
from lakelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
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
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders", segment_ms="1")
        (found,) = await alter(scene, resource(*changes), version=version)
        assert (found.error_code, found.error_message) == (ErrorCode.NONE, None)
        kept = {} if changes[0][0] == "segment.ms" else {"segment.ms": "1"}
        assert configs(scene) == {**kept, **after}

    run(scenario)


def test_a_list_starts_from_what_the_broker_gives_topics() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders")
        await alter(scene, resource(("cleanup.policy", APPEND, "delete")))
        assert configs(scene) == {"cleanup.policy": "compact,delete"}

    run(scenario, AdminStage(defaults=TopicDefaults(cleanup_policy="compact")))


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
        (resource(("log.retention.ms", SET, "x"), kind=4, name=""), ErrorCode.INVALID_CONFIG),
        (resource(("log.retention.ms", SET, "5"), kind=4, name="2"), ErrorCode.INVALID_REQUEST),
        (resource(("num.partitions", SET, "5"), kind=4, name=""), ErrorCode.INVALID_REQUEST),
        (resource(("nosuch", SET, "5"), kind=4, name="1"), ErrorCode.INVALID_CONFIG),
        (resource(kind=8, name="1"), ErrorCode.INVALID_REQUEST),
        (resource(kind=16, name="m"), ErrorCode.INVALID_REQUEST),
        (resource(kind=3, name="x"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_bad_change_is_refused_whole_and_the_good_one_beside_it_is_made(
    asked: IncrementalAlterConfigsResource, code: ErrorCode
) -> None:
    async def scenario(stage: AdminStage) -> None:
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
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders")
        found = await alter(scene, *(resource(("retention.ms", SET, str(n))) for n in (1, 2)))
        assert [result.error_code for result in found] == [ErrorCode.INVALID_REQUEST] * 2
        assert configs(scene) == {}

    run(scenario)


def test_validation_changes_nothing() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders")
        good, *_ = await alter(scene, resource(("retention.ms", SET, "9")), validate_only=True)
        bad, *_ = await alter(scene, resource(("retention.ms", SET, "x")), validate_only=True)
        assert (good.error_code, bad.error_code) == (0, ErrorCode.INVALID_CONFIG)
        assert configs(scene) == {}

    run(scenario)


def test_two_brokers_that_alter_at_once_lose_nothing() -> None:
    async def scenario(stage: AdminStage) -> None:
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
    async def scenario(stage: AdminStage) -> None:
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
    async def scenario(stage: AdminStage) -> None:
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
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        bad, fine = await alter(scene, asked, group((SESSION, SET, "50000"), name="good"))
        assert bad.error_code == code
        assert bad.error_message
        assert fine.error_code == ErrorCode.NONE
        assert scene.broker.group_configs.group_ids() == ["good"]

    run(scenario)


def test_a_group_and_a_topic_of_one_name_are_two_resources() -> None:
    async def scenario(stage: AdminStage) -> None:
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


async def described(scene: Scene, kind: int, name: str, key: str) -> list[tuple[str, str, int]]:
    """A config's synonyms as DescribeConfigs shows them, the one in effect first."""
    asked = DescribeConfigsResource(kind, name, (key,))
    answer = await scene.ask(
        DescribeConfigsRequest((asked,), include_synonyms=True), DescribeConfigsResponse, 4
    )
    (result,) = answer.results
    assert result.error_code == ErrorCode.NONE
    return [
        (synonym.name, synonym.value or "", synonym.source)
        for config in result.configs
        for synonym in config.synonyms
    ]


def test_brokers_take_what_is_set_for_all_and_a_single_one_may_have_its_own() -> None:
    async def scenario(stage: AdminStage) -> None:
        one, two = await stage.broker(1), await stage.broker(2)
        await make(one.broker.topics, "orders")
        for_all = resource(("message.max.bytes", SET, "30"), kind=4, name="")
        own = resource(("message.max.bytes", SET, "20"), kind=4, name="1")
        assert [found.error_code for found in await alter(one, for_all, own)] == [0, 0]
        for scene in (one, two):
            await scene.broker.topics.current()
        rest = [("message.max.bytes", "30", 3), ("message.max.bytes", "1048588", 5)]
        mine = ("message.max.bytes", "20", 2)
        assert await described(one, 4, "1", "message.max.bytes") == [mine, *rest]
        assert await described(two, 4, "2", "message.max.bytes") == rest
        assert await described(two, 4, "", "message.max.bytes") == rest[:1]
        assert await described(one, 2, "orders", "max.message.bytes") == [mine, *rest]
        assert await described(two, 2, "orders", "max.message.bytes") == rest
        known = [scene.broker.topics.cached("orders") for scene in (one, two)]
        assert [topic and topic.settings.message_bytes_max for topic in known] == [20, 30]

    run(scenario)


def test_lists_of_brokers_grow_from_what_is_in_effect() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        (found,) = await alter(
            scene, resource(("log.cleanup.policy", APPEND, "compact"), kind=4, name="1")
        )
        assert found.error_code == ErrorCode.NONE
        (first, *_) = await described(scene, 4, "1", "log.cleanup.policy")
        assert first == ("log.cleanup.policy", "delete,compact", 2)
        (found,) = await alter(
            scene, resource(("background.threads", APPEND, "9"), kind=4, name="1")
        )
        assert found.error_code == ErrorCode.INVALID_CONFIG

    run(scenario)


def test_groups_get_what_is_set_for_all_of_them() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene, key = await stage.broker(), "group.consumer.assignment.interval.ms"
        await scene.broker.group_configs.alter(
            "own", lambda _: {"consumer.assignment.interval.ms": "7"}
        )
        await alter(scene, resource((key, SET, "9"), kind=4, name=""))
        configs = scene.broker.group_configs
        assert [configs.of(group).assignment_interval_ms for group in ("own", "g")] == [7, 9]
        found = await described(scene, 32, "g", "consumer.assignment.interval.ms")
        assert found == [(key, "9", 3), (key, "1000", 5)]

    run(scenario)


def test_a_trial_alters_no_broker() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        change = resource(("log.retention.ms", SET, "5"), kind=4, name="")
        (found,) = await alter(scene, change, validate_only=True)
        assert found.error_code == ErrorCode.NONE
        assert await described(scene, 4, "", "log.retention.ms") == []

    run(scenario)
