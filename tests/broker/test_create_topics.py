import asyncio
from collections.abc import Sequence

import pytest
from tests.broker.admin_stage import AdminStage, Scene, run
from tests.topics.stepped_stores import Fault

from lakelog.broker.call import BrokerOptions
from lakelog.broker.create_topics import PARTITIONS_MAX, TOPICS_MAX
from lakelog.model.errors import RETRIABLE, ErrorCode
from lakelog.topics.settings import TopicDefaults
from lakelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

VERSION = 7


def wanted(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    assignments: Sequence[tuple[int, tuple[int, ...]]] = (),
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name,
        partitions,
        replication_factor,
        tuple(CreatableReplicaAssignment(*assignment) for assignment in assignments),
        tuple(CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()),
    )


async def create(
    scene: Scene,
    *topics: CreatableTopic,
    version: int = VERSION,
    timeout_ms: int = 5_000,
    validate_only: bool = False,
) -> tuple[CreatableTopicResult, ...]:
    request = CreateTopicsRequest(topics, timeout_ms, validate_only)
    return (await scene.ask(request, CreateTopicsResponse, version)).topics


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_makes_a_topic(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        (found,) = await create(scene, wanted("orders", 2, 3), version=version)
        assert (found.error_code, found.error_message) == (ErrorCode.NONE, None)
        assert (found.num_partitions, found.replication_factor) == (2, 3)
        made = scene.broker.topics.cached("orders")
        assert made is not None
        assert found.topic_id == made.id
        assert len(stage.streams.alive) == 2

    run(scenario)


def test_the_answer_shows_every_config_with_its_source() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        (found,) = await create(scene, wanted("orders", retention_ms="9"))
        assert found.configs is not None
        shown = {config.name: (config.value, config.config_source) for config in found.configs}
        assert shown["retention.ms"] == ("9", 1)
        assert shown["retention.bytes"] == ("77", 4)
        assert shown["cleanup.policy"] == ("delete", 5)
        assert list(shown) == sorted(shown)

    run(scenario, AdminStage(defaults=TopicDefaults(retention_bytes=77)))


def test_minus_one_means_the_brokers_defaults() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        (found,) = await create(scene, wanted("orders", -1, -1))
        assert (found.num_partitions, found.replication_factor) == (5, 2)

    run(scenario, AdminStage(options=BrokerOptions(num_partitions=5, default_replication_factor=2)))


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted("bad name!"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (wanted("t", 0), ErrorCode.INVALID_PARTITIONS),
        (wanted("t", -2), ErrorCode.INVALID_PARTITIONS),
        (wanted("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted("t", nosuch="1"), ErrorCode.INVALID_CONFIG),
        (wanted("t", retention_ms=None), ErrorCode.INVALID_CONFIG),
        (wanted("t", compression_type="brotli"), ErrorCode.INVALID_CONFIG),
        (wanted("t", PARTITIONS_MAX + 1), ErrorCode.POLICY_VIOLATION),
        (wanted("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (wanted("t", 1, -1, [(0, (1,))]), ErrorCode.INVALID_REQUEST),
        (wanted("t", -1, 1, [(0, (1,))]), ErrorCode.INVALID_REQUEST),
        (wanted("t", -1, -1, [(0, (9,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", -1, -1, [(0, (1, 1))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", -1, -1, [(0, ())]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", -1, -1, [(0, (1,)), (0, (1,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", -1, -1, [(0, (1,)), (2, (1,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", -1, -1, [(-1, (1,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_bad_topic_is_refused_and_the_good_one_beside_it_is_made(
    topic: CreatableTopic, code: ErrorCode
) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        bad, good = await create(scene, topic, wanted("good"))
        assert (bad.error_code, bad.name) == (code, topic.name)
        assert bad.error_message
        assert (bad.num_partitions, bad.replication_factor, bad.configs) == (-1, -1, ())
        assert bad.topic_id == bytes(16)
        assert good.error_code == ErrorCode.NONE
        assert [found.name for found in await scene.broker.topics.all()] == ["good"]
        assert len(stage.streams.alive) == 1

    run(scenario)


def test_an_assignment_counts_partitions_and_replicas() -> None:
    async def scenario(stage: AdminStage) -> None:
        await stage.broker(2)
        scene = await stage.broker(1)
        (found,) = await create(scene, wanted("t", -1, -1, [(1, (1, 2)), (0, (2, 1))]))
        assert (found.num_partitions, found.replication_factor) == (2, 2)
        (uneven,) = await create(scene, wanted("u", -1, -1, [(1, (1, 2)), (0, (2,))]))
        assert uneven.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT

    run(scenario)


def test_a_name_that_stands_twice_gets_one_answer_and_is_not_made() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        found = await create(scene, wanted("a"), wanted("b"), wanted("a", 2))
        assert [(topic.name, topic.error_code) for topic in found] == [("b", 0), ("a", 42)]
        assert [topic.name for topic in await scene.broker.topics.all()] == ["b"]

    run(scenario)


def test_validation_answers_the_same_and_stores_nothing() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        (found,) = await create(scene, wanted("orders", 4), validate_only=True)
        assert (found.error_code, found.num_partitions) == (ErrorCode.NONE, 4)
        assert found.topic_id != bytes(16)
        assert found.configs
        assert await scene.broker.topics.all() == ()
        (bad,) = await create(scene, wanted("orders", 0), validate_only=True)
        assert bad.error_code == ErrorCode.INVALID_PARTITIONS
        await create(scene, wanted("orders"))
        (late,) = await create(scene, wanted("orders"), validate_only=True)
        assert late.error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    run(scenario)


def test_a_request_makes_a_limited_number_of_topics_and_partitions() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        many = [wanted(f"t{number}") for number in range(TOPICS_MAX + 2)]
        found = await create(scene, *many, timeout_ms=60_000)
        assert [topic.error_code for topic in found][-3:] == [0, 44, 44]
        half = PARTITIONS_MAX // 2 + 1
        large = await create(scene, wanted("l1", half), wanted("l2", half), wanted("l3", 1))
        assert [topic.error_code for topic in large] == [0, 44, 0]

    run(scenario)


def test_a_store_that_fails_is_a_code_that_clients_repeat_on() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        for step in range(12):
            scene.steps.faults = {scene.steps.taken + step: Fault.UNAVAILABLE}
            (found,) = await create(scene, wanted(f"t{step}"))
            assert found.error_code in {*RETRIABLE, ErrorCode.NONE}
            scene.steps.faults = {}
            (again,) = await create(scene, wanted(f"t{step}"))
            expected = 0 if found.error_code else ErrorCode.TOPIC_ALREADY_EXISTS
            assert again.error_code == expected, step

    run(scenario)


def test_a_request_ends_when_its_time_is_over() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        loop = asyncio.get_running_loop()

        async def hang(*_: object, **__: object) -> None:
            await asyncio.sleep(3_600)

        scene.log.create_streams = hang  # type: ignore[method-assign] # a log that never answers
        began_s = loop.time()
        found = await create(scene, wanted("a"), wanted("b"), timeout_ms=2_000)
        assert [topic.error_code for topic in found] == [ErrorCode.REQUEST_TIMED_OUT] * 2
        assert 1.9 <= loop.time() - began_s <= 2.1

    run(scenario)
