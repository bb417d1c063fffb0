import pytest
from tests.broker.admin_stage import AdminStage, Scene, run
from tests.topics.stepped_stores import Fault, make

from lakelog.model.errors import ErrorCode
from lakelog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


async def delete(
    scene: Scene, *states: DeleteTopicState, names: tuple[str, ...] = (), version: int = 6
) -> tuple[DeletableTopicResult, ...]:
    request = DeleteTopicsRequest(states, 5_000, names)
    return (await scene.ask(request, DeleteTopicsResponse, version)).responses


@pytest.mark.parametrize("version", range(1, 6))
def test_old_versions_delete_by_name(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders")
        gone, unknown = await delete(scene, names=("orders", "other"), version=version)
        assert (gone.name, gone.error_code) == ("orders", ErrorCode.NONE)
        assert (unknown.name, unknown.error_code) == ("other", 3)
        assert stage.streams.alive == {}

    run(scenario)


def test_a_topic_is_deleted_by_name_or_by_id_and_the_answer_has_both() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        first = await make(scene.broker.topics, "first")
        second = await make(scene.broker.topics, "second")
        found = await delete(scene, DeleteTopicState("first"), DeleteTopicState(None, second.id))
        assert [(topic.name, topic.topic_id, topic.error_code) for topic in found] == [
            ("first", first.id, 0),
            ("second", second.id, 0),
        ]
        assert await scene.broker.topics.all() == ()

    run(scenario)


def test_a_topic_that_is_named_twice_is_not_deleted_twice() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        made = await make(scene.broker.topics, "orders")
        by_id = DeleteTopicState(None, made.id)
        twice = await delete(scene, by_id, by_id)
        assert [(topic.name, topic.topic_id, topic.error_code) for topic in twice] == [
            (None, made.id, 42)
        ]
        both = await delete(scene, DeleteTopicState("orders"), by_id)
        assert [(topic.name, topic.topic_id, topic.error_code) for topic in both] == [
            ("orders", made.id, 42)
        ]
        assert await scene.broker.topics.all() == (made,)

    run(scenario)


def test_a_topic_made_again_elsewhere_is_the_one_that_is_deleted() -> None:
    async def scenario(stage: AdminStage) -> None:
        here, there = await stage.broker(1), await stage.broker(2)
        old = await make(here.broker.topics, "orders")
        await there.broker.topics.current()
        await here.broker.topics.delete(old)
        new = await make(here.broker.topics, "orders")
        (by_old_id,) = await delete(there, DeleteTopicState(None, old.id))
        assert (by_old_id.error_code, by_old_id.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
        (gone,) = await delete(there, DeleteTopicState("orders"))
        assert (gone.error_code, gone.topic_id) == (0, new.id)
        assert stage.streams.alive == {}

    run(scenario)


def test_without_the_store_nothing_is_called_unknown() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        taken = scene.steps.taken
        scene.steps.faults = dict.fromkeys(range(taken, taken + 99), Fault.UNAVAILABLE)
        found = await delete(scene, DeleteTopicState("a"), DeleteTopicState(None, b"x" * 16))
        assert [topic.error_code for topic in found] == [ErrorCode.REQUEST_TIMED_OUT] * 2

    run(scenario)
