import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.admin_stage import AdminStage, Scene, run
from tests.profiles import examples
from tests.topics.stepped_stores import Fault, make

from lakelog.broker.describe_topic_partitions import PARTITIONS_MAX
from lakelog.model.errors import ErrorCode
from lakelog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopicRequest,
)

Cursor = DescribeTopicPartitionsRequestCursor


async def describe(
    scene: Scene, *names: str, limit: int = 100, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        tuple(DescribeTopicPartitionsTopicRequest(name) for name in names),
        limit,
        cursor and Cursor(*cursor),
    )
    return await scene.ask(request, DescribeTopicPartitionsResponse, 0)


def shown(found: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in found.topics
    ]


def cursor_of(found: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = found.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


async def two_topics(stage: AdminStage) -> Scene:
    scene = await stage.broker()
    await make(scene.broker.topics, "b", 3)
    await make(scene.broker.topics, "a", 2)
    return scene


@pytest.mark.parametrize(
    ("limit", "cursor", "pages", "following"),
    [
        (100, None, [("a", [0, 1]), ("b", [0, 1, 2])], None),
        (5, None, [("a", [0, 1]), ("b", [0, 1, 2])], None),
        (4, None, [("a", [0, 1]), ("b", [0, 1])], ("b", 2)),
        (2, None, [("a", [0, 1])], ("b", 0)),
        (1, None, [("a", [0])], ("a", 1)),
        (0, None, [("a", [0])], ("a", 1)),
        (-5, None, [("a", [0])], ("a", 1)),
        (100, ("a", 1), [("a", [1]), ("b", [0, 1, 2])], None),
        (100, ("a", 9), [("a", []), ("b", [0, 1, 2])], None),
        (100, ("aa", 7), [("b", [0, 1, 2])], None),
        (100, ("c", 0), [], None),
    ],
)
def test_all_topics_come_in_pages(
    limit: int,
    cursor: tuple[str, int] | None,
    pages: list[tuple[str, list[int]]],
    following: tuple[str, int] | None,
) -> None:
    async def scenario(stage: AdminStage) -> None:
        found = await describe(await two_topics(stage), limit=limit, cursor=cursor)
        assert (shown(found), cursor_of(found)) == (pages, following)

    run(scenario)


def test_unknown_topics_are_sorted_in_and_count_nothing() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await two_topics(stage)
        asked = ("b", "__consumer_offsets", "aa", "a", "bad name!", "a")
        found = await describe(scene, *asked, limit=5)
        facts = [(t.name, t.error_code, len(t.partitions), t.is_internal) for t in found.topics]
        assert (
            facts
            == [
                ("__consumer_offsets", 3, 0, True),
                ("a", 0, 2, False),
                ("aa", 3, 0, False),
                ("b", 0, 3, False),
                ("bad name!", 17, 0, False),
            ][: len(facts)]
        )
        assert len(facts) in {4, 5}
        assert {topic.topic_authorized_operations for topic in found.topics} == {3576}

    run(scenario)


def test_a_partition_has_a_leader_alone_and_no_null_lists() -> None:
    async def scenario(stage: AdminStage) -> None:
        found = await describe(await two_topics(stage), "a")
        partition = found.topics[0].partitions[0]
        assert (partition.leader_id, partition.leader_epoch) == (1, 0)
        assert partition.replica_nodes == partition.isr_nodes == (1,)
        assert partition.eligible_leader_replicas == partition.last_known_elr == ()

    run(scenario)


@pytest.mark.parametrize(
    ("names", "cursor"), [(("b",), ("a", 0)), (("b",), ("b", -1)), ((), ("b", -1))]
)
def test_a_cursor_that_points_nowhere_is_refused(
    names: tuple[str, ...], cursor: tuple[str, int]
) -> None:
    async def scenario(stage: AdminStage) -> None:
        found = await describe(await two_topics(stage), *names, cursor=cursor)
        codes = [topic.error_code for topic in found.topics]
        assert codes == [ErrorCode.INVALID_REQUEST] * len(names)
        assert found.next_cursor is None

    run(scenario)


def test_a_page_has_a_limit_of_its_own() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "huge", PARTITIONS_MAX + 1)
        found = await describe(scene, limit=2**31 - 1)
        assert cursor_of(found) == ("huge", PARTITIONS_MAX)

    run(scenario)


@settings(max_examples=examples(30))
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(1, 7))
def test_pages_together_show_every_partition_once(counts: list[int], limit: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        for number, count in enumerate(counts):
            await make(scene.broker.topics, f"t{number}", count)
        seen: list[tuple[str | None, int]] = []
        cursor: tuple[str, int] | None = None
        while True:
            found = await describe(scene, limit=limit, cursor=cursor)
            page = [(name, p) for name, partitions in shown(found) for p in partitions]
            assert len(page) <= limit
            seen += page
            cursor = cursor_of(found)
            if cursor is None:
                break
        assert seen == [(f"t{n}", p) for n, count in enumerate(counts) for p in range(count)]

    run(scenario)


def test_without_the_store_nothing_is_called_unknown() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await two_topics(stage)
        taken = scene.steps.taken
        scene.steps.faults = dict.fromkeys(range(taken, taken + 9), Fault.UNAVAILABLE)
        found = await describe(scene, "a", "x")
        assert [topic.error_code for topic in found.topics] == [ErrorCode.REQUEST_TIMED_OUT] * 2

    run(scenario)
