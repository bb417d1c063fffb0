"""Scripts of the newer protocol: members with an instance id."""

from tests.golden.groups.asks import inspected, leave, pulse
from tests.golden.groups.consumer import Consumer
from tests.golden.groups.offset_asks import At, Of, offsets
from tests.golden.groups.script import script
from tests.golden.groups.stage import Stage


@script()
async def a_static_consumer_comes_back(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 2)
    group = stage.group()
    one, two = Consumer(stage, "one", instance="i"), Consumer(stage, "two", "b", instance="i")
    await one.enter(topic)
    await one.beat(owned={topic_id: (0, 1)})
    await two.enter(topic)
    await one.leave(-2)
    await stage.ask(inspected(group), "admin")
    await one.beat()
    await one.commit(At(topic, 0, 1))
    await two.enter(topic)
    await stage.ask(inspected(group), "admin")
    await two.beat()
    await one.beat()
    await one.leave(-1)
    await one.leave(-2)
    await stage.ask(pulse(group, "one", one.epoch))
    await one.commit(At(topic, 0, 1))
    await stage.ask(offsets(Of(group, {topic: (0,)}, "one", one.epoch)))
    await two.commit(At(topic, 0, 1))
    await two.leave()
    await stage.ask(inspected(group), "admin")


@script()
async def a_static_consumer_comes_back_with_its_id(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 2)
    one = Consumer(stage, "one", instance="i")
    await one.enter(topic)
    await one.leave(-2)
    await one.enter(topic)
    await one.beat(owned={topic_id: (0, 1)})
    await one.enter(topic)
    await stage.ask(inspected(stage.group()), "admin")


@script()
async def static_consumers_that_are_unknown(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 2)
    group = stage.group()
    one, two = Consumer(stage, "one", instance="i"), Consumer(stage, "two", "b")
    await one.leave(-2)
    await one.enter(topic)
    await two.enter(topic)
    await stage.ask(pulse(group, "one", one.epoch, instance="j"))
    await stage.ask(pulse(group, "nobody", one.epoch, instance="i"))
    await stage.ask(pulse(group, "one", one.epoch))
    await stage.ask(pulse(group, "two", two.epoch, instance="i"), "b")
    await stage.ask(pulse(group, "two", two.epoch, instance="j"), "b")
    await two.leave(-2)
    await stage.ask(pulse(group, "one", -2, instance="j"))
    await stage.ask(pulse(group, "one", -1, instance="j"))
    await stage.ask(inspected(group), "admin")


@script()
async def a_static_consumer_comes_back_with_another_subscription(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 2)
    other, _ = await stage.topic("u", 2)
    old, peer = Consumer(stage, "one", instance="i"), Consumer(stage, "peer", "b")
    new = Consumer(stage, "two", instance="i")
    await old.enter(topic)
    await old.beat(owned={topic_id: (0, 1)})
    await peer.enter(topic)
    await old.leave(-2)
    await peer.beat()
    await new.enter(topic, other)
    await stage.ask(inspected(stage.group()), "admin")
    await peer.beat()
    await peer.beat()


@script()
async def an_administrator_removes_consumers(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 2)
    group = stage.group()
    one, two = Consumer(stage, "one", instance="i"), Consumer(stage, "two", "b")
    await one.enter(topic)
    await two.enter(topic)
    await stage.ask(leave(group, "nobody", version=2), "admin")
    await stage.ask(leave(group, "two", version=2), "admin")
    await stage.ask(leave(group, "two", instances={"i": "", "j": ""}), "admin")
    await stage.ask(inspected(group), "admin")
    await one.beat()
    await two.beat()
