"""Scripts of the newer protocol: joining, being refused, epochs, what an answer holds."""

from tests.golden.groups.asks import enter, inspected, pulse
from tests.golden.groups.consumer import Consumer
from tests.golden.groups.script import script
from tests.golden.groups.stage import Ask, Stage

from lakelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)

SOME_ID = bytes(15) + b"\x07"


@script()
async def a_consumer_joins(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 4)
    group = stage.group()
    one, two = Consumer(stage, "one"), Consumer(stage, "two")
    await one.enter(topic)
    await one.beat()
    await stage.ask(inspected(group), "admin")
    await one.beat(owned={topic_id: range(4)})
    await stage.ask(inspected(group), "admin")
    await one.beat(owned={topic_id: (0, 1)})
    await one.beat()
    await one.enter(topic, epoch=one.epoch, owned={topic_id: range(4)})
    await one.beat(names=[topic])
    await stage.ask(pulse(group, "one", one.epoch, rebalance_ms=30_000))
    await one.leave()
    await stage.ask(inspected(group), "admin")
    await one.beat()
    await two.enter(topic)
    await stage.ask(inspected(group, version=0, operations=True), "admin")


@script()
async def a_consumer_of_version_0_gets_an_id(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 2)
    group = stage.group()
    joined = await stage.ask(enter(group, "", topic, version=0))
    member, epoch = joined.member_id or "", joined.member_epoch
    await stage.ask(pulse(group, member, epoch, version=0))
    await stage.ask(pulse(group, member, epoch, version=1))
    await stage.ask(enter(group, "own", topic, version=0), "b")
    await stage.ask(pulse(group, "", epoch, version=0))
    await stage.ask(inspected(group), "admin")
    await stage.ask(pulse(group, member, -1, version=0))


@script()
async def consumers_that_are_refused(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 1)
    group = stage.group()
    await stage.ask(enter("", "one", topic))
    await stage.ask(enter(" ", "one", topic))
    await stage.ask(enter(group, "", topic))
    await stage.ask(enter(group, "", topic, epoch=1, version=0))
    for epoch in (1, -1, -2, -3):
        await stage.ask(pulse(group, "one", epoch))
    await stage.ask(pulse(group, "one", -2, instance="i"))
    await stage.ask(pulse(group, "one", 0))
    await stage.ask(pulse(group, "one", 0, rebalance_ms=1_000))
    await stage.ask(pulse(group, "one", 0, rebalance_ms=1_000, owned={}))
    await stage.ask(pulse(group, "one", 0, rebalance_ms=1_000, names=[topic]))
    await stage.ask(enter(group, "one", topic, owned={topic_id: (0,)}))
    await stage.ask(enter(group, "one", topic, rebalance_ms=-1))
    await stage.ask(enter(group, "one", topic, instance=""))
    await stage.ask(enter(group, "one", topic, assignor=""))
    await stage.ask(enter(group, "one", topic, assignor="bogus"))
    await stage.ask(pulse(group, "one", 0, rack="", names=[topic], rebalance_ms=9, owned={}))
    await stage.ask(pulse(group, "one", 0, regex="[", rebalance_ms=9, owned={}))
    await stage.ask(pulse(group, "one", 0, regex="(?<a", names=[topic], rebalance_ms=9, owned={}))
    await stage.ask(inspected(group), "admin")


@script()
async def odd_consumers_that_are_not_refused(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 1)
    group = stage.group()
    await stage.ask(enter(group, "one", topic, rebalance_ms=-5))
    await stage.ask(enter(group, "two", "no-such-topic", rebalance_ms=0), "b")
    three = Consumer(stage, "three", "c")
    await three.enter()
    await three.beat(assignor="bogus")
    await three.beat(regex="[")
    await three.beat(owned={SOME_ID: (0,)})
    await three.beat(owned={topic_id: (0, 0, -1)})
    await stage.ask(inspected(group), "admin")


@script()
async def epochs_that_do_not_fit(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 2)
    group = stage.group()
    one, two = Consumer(stage, "one"), Consumer(stage, "two", "b")
    await one.enter(topic)
    await one.beat(epoch=one.epoch + 1)
    await one.beat(epoch=one.epoch - 1, owned={topic_id: (0, 1)})
    await two.enter(topic)
    before = one.epoch
    await one.beat(owned={topic_id: (0, 1)})
    await one.beat(epoch=before, owned={topic_id: (0,)})
    # Its answer may be lost: the epoch before is taken while it owns no more than it may.
    await one.beat(epoch=before)
    await one.beat(epoch=before, owned={topic_id: (0, 1)})
    await one.beat(epoch=before, owned={topic_id: (1,)})
    await one.beat(epoch=before, owned={})
    await one.beat(epoch=before, owned={topic_id: (0,)})
    await one.beat(epoch=before - 1, owned={topic_id: (0,)})
    await one.beat(epoch=one.epoch + 1)
    await one.beat(owned={topic_id: (0,)})
    await stage.ask(pulse(group, "nobody", one.epoch))
    await stage.ask(pulse(group, "nobody", one.epoch + 1))
    await stage.ask(pulse(group, "", one.epoch, version=0))
    await one.enter(topic)
    await one.enter(topic)
    await stage.ask(pulse(group, "nobody", -1))
    await stage.ask(pulse(group, "one", -2))
    await stage.ask(inspected(group), "admin")


@script()
async def a_subscription_changes(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 2)
    other, other_id = await stage.topic("u", 2)
    group = stage.group()
    one = Consumer(stage, "one")
    await one.enter(topic)
    await one.beat(names=[topic, other])
    await one.beat(names=[other, topic, topic])
    await one.beat(names=[other])
    await one.beat(owned={topic_id: (0, 1), other_id: (0, 1)})
    await stage.ask(inspected(group), "admin")
    await one.beat(owned={other_id: (0, 1)})
    await one.beat(names=[])
    await one.beat(owned={})
    await stage.ask(inspected(group), "admin")


@script()
async def a_topic_comes_and_grows(stage: Stage) -> None:
    group = stage.group()
    name = f"{stage.name}.t"
    one = Consumer(stage, "one")
    await one.enter(name)
    await stage.ask(inspected(group), "admin")
    _, topic_id = await stage.topic("t", 1)
    await one.beat_until()
    await one.beat(owned={topic_id: (0,)})
    grown = CreatePartitionsTopic(name, 3, None)
    request = CreatePartitionsRequest((grown,), timeout_ms=10_000)
    await stage.unseen(Ask(request, CreatePartitionsResponse, 3))
    await one.beat_until()
    await stage.ask(inspected(group), "admin")


@script()
async def a_pattern_is_subscribed(stage: Stage) -> None:
    _, topic_id = await stage.topic("t-1", 1)
    other, other_id = await stage.topic("other", 1)
    group = stage.group()
    one = Consumer(stage, "one")
    pattern = f"{stage.name}\\.t-.*"
    await one.enter_by(pattern)
    await one.beat_until()
    await stage.ask(inspected(group), "admin")
    await one.beat(regex=pattern)
    await one.beat(names=[other])
    await one.beat(owned={topic_id: (0,)}, regex="")
    await stage.ask(inspected(group), "admin")
    await one.beat(owned={other_id: (0,)})
    for refused in ("(((", "a{99999}", "(a)\\1", "(?=a)", "*"):
        await one.beat(regex=refused)
    await stage.ask(inspected(group), "admin")


@script()
async def a_pattern_finds_a_new_member_and_nothing(stage: Stage) -> None:
    await stage.topic("t-1", 2)
    one, two = Consumer(stage, "one"), Consumer(stage, "two", "b")
    await one.enter_by(f"{stage.name}\\.t-.*")
    await one.beat_until()
    await two.enter_by(f"{stage.name}\\.t-[a-z]")
    await one.beat()
    await two.beat()
    await stage.ask(inspected(stage.group()), "admin")


@script()
async def the_assignor_that_most_members_want(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 3)
    other, _ = await stage.topic("u", 3)
    group = stage.group()
    one = Consumer(stage, "one")
    await one.enter(topic, other, assignor="range")
    await stage.ask(inspected(group), "admin")
    await one.beat(assignor="uniform")
    await stage.ask(inspected(group), "admin")
    await Consumer(stage, "two", "b").enter(topic, other, assignor="range")
    await Consumer(stage, "three", "c").enter(topic, other, assignor="range")
    await stage.ask(inspected(group), "admin")
    await one.beat(assignor="nothing-known")


@script()
async def two_members_by_range(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 3)
    other, other_id = await stage.topic("u", 4)
    group = stage.group()
    one, two = Consumer(stage, "one"), Consumer(stage, "two", "b")
    await one.enter(topic, other, assignor="range")
    await two.enter(topic, other, assignor="range")
    await one.beat(owned={topic_id: range(3), other_id: range(4)})
    await stage.ask(inspected(group), "admin")
    await one.beat(owned={topic_id: (0, 1), other_id: (0, 1)})
    await two.beat()
    await stage.ask(inspected(group), "admin")


@script()
async def members_with_different_subscriptions(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 3)
    other, other_id = await stage.topic("u", 2)
    one, two = Consumer(stage, "one"), Consumer(stage, "two", "b")
    await one.enter(topic, other)
    await two.enter(other)
    await one.beat(owned={topic_id: range(3), other_id: range(2)})
    await one.beat(owned={topic_id: range(3)})
    await two.beat()
    await stage.ask(inspected(stage.group()), "admin")


@script()
async def a_rack_is_remembered(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 1)
    group = stage.group()
    ask = pulse(group, "one", 0, rack="r1", names=[topic], rebalance_ms=9_000, owned={})
    joined = await stage.ask(ask)
    await stage.ask(pulse(group, "one", joined.member_epoch, rack="r2"))
    await stage.ask(inspected(group), "admin")
