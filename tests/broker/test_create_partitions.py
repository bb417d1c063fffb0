import pytest
from tests.broker.admin_stage import AdminStage, Scene, run
from tests.topics.stepped_stores import Fault, make

from lakelog.broker.create_partitions import PARTITIONS_MAX
from lakelog.model.errors import ErrorCode
from lakelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def wanted(name: str, count: int, *assignments: tuple[int, ...]) -> CreatePartitionsTopic:
    assigned = tuple(CreatePartitionsAssignment(brokers) for brokers in assignments)
    return CreatePartitionsTopic(name, count, assigned or None)


async def grow(
    scene: Scene, *topics: CreatePartitionsTopic, version: int = 3, validate_only: bool = False
) -> tuple[CreatePartitionsTopicResult, ...]:
    request = CreatePartitionsRequest(topics, 5_000, validate_only)
    return (await scene.ask(request, CreatePartitionsResponse, version)).results


@pytest.mark.parametrize("version", range(4))
def test_each_topic_gets_one_answer(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        for name in ("a", "b", "c"):
            await make(scene.broker.topics, name, 2)
        found = await grow(
            scene,
            wanted("a", 4),
            wanted("b", 2),
            wanted("c", 1),
            wanted("unknown", 3),
            wanted("d", 3),
            wanted("d", 4),
            version=version,
        )
        assert {result.name: result.error_code for result in found} == {
            "a": 0,
            "b": ErrorCode.INVALID_PARTITIONS,
            "c": ErrorCode.INVALID_PARTITIONS,
            "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "d": ErrorCode.INVALID_REQUEST,
        }
        assert len(stage.streams.alive) == 8

    run(scenario)


@pytest.mark.parametrize(
    ("assignments", "code"),
    [
        (((1,), (1,)), ErrorCode.NONE),
        (((1,),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (((1,), (9,)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (((1,), (1, 1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_assignments_are_checked(assignments: tuple[tuple[int, ...], ...], code: ErrorCode) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders", 1)
        (found,) = await grow(scene, wanted("orders", 3, *assignments))
        assert found.error_code == code

    run(scenario)


def test_validation_changes_nothing() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        made = await make(scene.broker.topics, "orders", 1)
        good, bad = await grow(scene, wanted("orders", 3), wanted("other", 3), validate_only=True)
        assert (good.error_code, bad.error_code) == (0, 3)
        assert await scene.broker.topics.find("orders") == made

    run(scenario)


def test_a_growth_that_was_cut_short_succeeds_when_repeated() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        for step in range(10):
            await make(scene.broker.topics, f"t{step}", 1)
            scene.steps.faults = {scene.steps.taken + step: Fault.LOST}
            (found,) = await grow(scene, wanted(f"t{step}", 3))
            scene.steps.faults = {}
            (again,) = await grow(scene, wanted(f"t{step}", 3))
            done = await scene.broker.topics.find(f"t{step}")
            assert done is not None
            assert done.partition_count == 3
            assert (found.error_code == 0) <= (again.error_code == 37)
            assert again.error_code in {0, 37}

    run(scenario)


def test_a_request_makes_a_limited_number_of_partitions() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        for name in ("a", "b"):
            await make(scene.broker.topics, name, 1)
        found = await grow(scene, wanted("a", 60_000), wanted("b", PARTITIONS_MAX - 50_000))
        assert [result.error_code for result in found] == [0, ErrorCode.POLICY_VIOLATION]

    run(scenario)
