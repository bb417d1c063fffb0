"""Scripts of the newer protocol: partitions move from member to member."""

from tests.golden.groups.asks import inspected, listed
from tests.golden.groups.consumer import Consumer
from tests.golden.groups.script import script
from tests.golden.groups.stage import Stage


@script()
async def two_members_share(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 4)
    group = stage.group()
    one, two = Consumer(stage, "one"), Consumer(stage, "two", "b")
    await one.enter(topic)
    await one.beat(owned={topic_id: range(4)})
    await two.enter(topic)
    await stage.ask(inspected(group), "admin")
    await two.beat()
    await two.beat(owned={})
    # It is told to give up two, keeps its epoch until it did, and is told once.
    await one.beat()
    await stage.ask(inspected(group), "admin")
    await one.beat()
    await one.beat(owned={topic_id: range(4)})
    await two.beat()
    await one.beat(owned={topic_id: (0, 1, 2)})
    await one.beat(owned={topic_id: (0, 1)})
    await stage.ask(inspected(group), "admin")
    await two.beat()
    await two.beat()
    await two.beat(owned={topic_id: (2, 3)})
    await one.beat(owned={topic_id: (0, 1)})
    await stage.ask(inspected(group), "admin")
    await stage.ask(listed(types=["consumer"]), "admin")


@script()
async def a_third_member_waits_for_two(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 6)
    group = stage.group()
    one, two, three = (
        Consumer(stage, *each) for each in (("one", "a"), ("two", "b"), ("three", "c"))
    )
    await one.enter(topic)
    await two.enter(topic)
    await one.beat(owned={topic_id: range(6)})
    await one.beat(owned={topic_id: range(3)})
    await two.beat(owned={})
    await two.beat(owned={topic_id: (3, 4, 5)})
    await three.enter(topic)
    await two.beat(owned={topic_id: (3, 4, 5)})
    await two.beat(owned={topic_id: (3, 4)})
    await three.beat()
    await three.beat()
    await stage.ask(inspected(group), "admin")
    await one.beat(owned={topic_id: range(3)})
    await one.beat(owned={topic_id: (0, 1)})
    await three.beat()
    await three.beat(owned={topic_id: (2, 5)})
    await stage.ask(inspected(group), "admin")


@script()
async def a_member_leaves_and_its_partitions_go_on(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 2)
    group = stage.group()
    one, two = Consumer(stage, "one"), Consumer(stage, "two", "b")
    await one.enter(topic)
    await two.enter(topic)
    await one.beat(owned={topic_id: (0, 1)})
    await one.leave()
    await stage.ask(inspected(group), "admin")
    await two.beat()
    await two.beat()
    await stage.ask(inspected(group), "admin")
    await two.leave()
    await two.leave()
    await stage.ask(inspected(group), "admin")
    await stage.ask(listed(), "admin")
    await two.beat()
    await one.enter(topic)


@script()
async def a_target_changes_while_a_member_revokes(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 4)
    one, two = Consumer(stage, "one"), Consumer(stage, "two", "b")
    await one.enter(topic)
    await two.enter(topic)
    await one.beat(owned={topic_id: range(4)})
    await two.leave()
    await one.beat(owned={topic_id: range(4)})
    await one.beat(owned={topic_id: (0, 1)})
    await one.beat(owned={topic_id: range(4)})
    await stage.ask(inspected(stage.group()), "admin")


@script()
async def a_member_that_owns_more_than_it_may(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 2)
    _, other_id = await stage.topic("u", 1)
    one = Consumer(stage, "one")
    await one.enter(topic)
    await one.beat(owned={topic_id: (0, 1, 2), other_id: (0,)})
    await one.beat(owned={})
    await one.beat()
    await stage.ask(inspected(stage.group()), "admin")


@script()
async def a_member_leaves_while_it_revokes(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 2)
    one, two = Consumer(stage, "one"), Consumer(stage, "two", "b")
    await one.enter(topic)
    await two.enter(topic)
    await one.beat(owned={topic_id: (0, 1)})
    await two.beat()
    await one.leave()
    await two.beat()
    await two.beat(owned={topic_id: (0, 1)})
    await stage.ask(inspected(stage.group()), "admin")


@script()
async def a_consumer_joins_again_at_epoch_0(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 4)
    group = stage.group()
    one, two = Consumer(stage, "one"), Consumer(stage, "two", "b")
    await one.enter(topic)
    await one.enter(topic)
    await two.enter(topic)
    await one.beat(owned={topic_id: range(4)})
    await one.enter(topic)
    await stage.ask(inspected(group), "admin")
    await two.beat()
    await two.enter(topic)
    await one.beat(owned={topic_id: (0, 1)})
    await stage.ask(inspected(group), "admin")
