import pytest
from tests.broker.admin_stage import AdminStage, Scene, run
from tests.topics.stepped_stores import Fault, make

from lakelog.model.errors import ErrorCode
from lakelog.model.ids import BrokerId
from lakelog.topics.routing import BrokerNode
from lakelog.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

Sizes = dict[tuple[str, int], int]


async def describe(
    scene: Scene, topics: tuple[DescribableLogDirTopic, ...] | None, version: int = 5
) -> tuple[DescribeLogDirsResult, Sizes]:
    request = DescribeLogDirsRequest(topics)
    (found,) = (await scene.ask(request, DescribeLogDirsResponse, version)).results
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in found.topics
        for partition in topic.partitions
    }
    return found, sizes


@pytest.mark.parametrize("version", range(1, 6))
def test_the_one_directory_is_the_object_store(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders", 2)
        scene.size("orders", 1, 77)
        found, sizes = await describe(scene, None, version)
        assert (found.error_code, found.log_dir) == (ErrorCode.NONE, "memory:///lake")
        assert (found.total_bytes, found.usable_bytes, found.is_cordoned) == (-1, -1, False)
        assert sizes == {("orders", 0): 0, ("orders", 1): 77}

    run(scenario)


def test_null_asks_for_all_empty_for_none_and_the_unknown_is_left_out() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        for name in ("a", "b"):
            await make(scene.broker.topics, name, 2)
        assert set((await describe(scene, None))[1]) == {(n, p) for n in "ab" for p in (0, 1)}
        assert (await describe(scene, ()))[1] == {}
        asked = (
            DescribableLogDirTopic("a", (1, 1, 9, -1)),
            DescribableLogDirTopic("x", (0,)),
            DescribableLogDirTopic("a", (1,)),
        )
        assert set((await describe(scene, asked))[1]) == {("a", 1)}

    run(scenario)


def test_brokers_together_report_each_partition_once() -> None:
    async def scenario(stage: AdminStage) -> None:
        scenes = [
            await stage.broker(number, BrokerNode(BrokerId(number), "h", 9090 + number, zone, "m"))
            for number, zone in ((1, "a"), (2, "a"), (3, "b"))
        ]
        await make(scenes[0].broker.topics, "orders", 40)
        for scene in scenes:
            await scene.broker.cluster.refresh()
        for client, askers in (("app", (0, 1, 2)), ("zone_id=a", (0, 1)), ("zone_id=b", (2,))):
            seen = [
                place
                for asker in askers
                for place in (await describe(scenes[asker].as_client(client), None))[1]
            ]
            assert sorted(seen) == [("orders", partition) for partition in range(40)]
        outside, sizes = await describe(scenes[2].as_client("zone_id=a"), None)
        assert (outside.topics, sizes) == ((), {})

    run(scenario)


def test_without_the_store_a_client_is_told_to_come_again() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        taken = scene.steps.taken
        scene.steps.faults = dict.fromkeys(range(taken, taken + 9), Fault.UNAVAILABLE)
        found, sizes = await describe(scene, None)
        assert (found.error_code, sizes) == (ErrorCode.REQUEST_TIMED_OUT, {})

    run(scenario)
