"""Scripts of both protocols in one group, with the migration of live groups switched off."""

from tests.golden.groups.asks import (
    beat,
    described,
    enter,
    inspected,
    join,
    leave,
    listed,
    pulse,
    subscription,
    sync,
)
from tests.golden.groups.consumer import Consumer
from tests.golden.groups.members import admitted, alone
from tests.golden.groups.offset_asks import At, Of, commit, offsets
from tests.golden.groups.script import script
from tests.golden.groups.stage import Stage


@script()
async def a_consumer_at_a_live_classic_group(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 1)
    group = stage.group()
    blob = [("range", subscription(topic))]
    joined = await admitted(stage, group, protocols=blob)
    await stage.ask(enter(group, "one", topic), "b")
    member, generation = joined.member_id, joined.generation_id
    await stage.ask(sync(group, generation, member, {member: b"mine"}))
    await stage.ask(enter(group, "one", topic), "b")
    await stage.ask(pulse(group, "one", 1), "b")
    await stage.ask(pulse(group, member, generation), "b")
    await stage.ask(pulse(group, "one", -1), "b")
    await stage.ask(inspected(group), "admin")
    await stage.ask(beat(group, generation, member))
    other = stage.group("connect")
    given = await stage.ask(join(other, kind="connect"))
    await stage.ask(join(other, given.member_id, kind="connect"))
    await stage.ask(enter(other, "one", topic), "b")


@script()
async def a_classic_member_at_a_live_consumer_group(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 1)
    group = stage.group()
    one = Consumer(stage, "one")
    await one.enter(topic)
    blob = [("range", subscription(topic))]
    for version in (0, 3, 4, 9):
        await stage.ask(join(group, protocols=blob, version=version), "b")
    await stage.ask(join(group, "one", protocols=blob), "b")
    await stage.ask(join(group, "nobody", protocols=blob), "b")
    await stage.ask(join(group, instance="i", protocols=blob), "b")
    await stage.ask(join(group, kind="connect", protocols=blob), "b")
    await stage.ask(join(group, protocols=[("range", b"\x00")]), "b")
    await stage.ask(sync(group, one.epoch, "one"), "b")
    await stage.ask(sync(group, 1, "nobody"), "b")
    await stage.ask(beat(group, one.epoch, "one"), "b")
    await stage.ask(beat(group, 1, "nobody"), "b")
    await stage.ask(leave(group, "nobody"), "b")
    await stage.ask(described(group, version=5), "admin")
    await stage.ask(described(group, version=6), "admin")
    await one.beat()
    await stage.ask(inspected(group), "admin")


@script()
async def an_emptied_classic_group_becomes_a_consumer_group(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 1)
    group = stage.group()
    first = await alone(stage, group)
    again = await stage.ask(join(group, first.member_id))
    await stage.ask(sync(group, again.generation_id, again.member_id))
    await stage.ask(commit(group, again.generation_id, again.member_id, At(topic, 0, 5)))
    await stage.ask(leave(group, again.member_id))
    await stage.ask(enter(group, "one", topic), "b")
    await stage.ask(listed(), "admin")
    await stage.ask(described(group), "admin")
    await stage.ask(inspected(group), "admin")
    await stage.ask(offsets(Of(group)))
    await stage.ask(beat(group, again.generation_id, again.member_id))
    await stage.ask(commit(group, again.generation_id, again.member_id, At(topic, 0, 6)))


@script()
async def offsets_become_a_consumer_group(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 1)
    group = stage.group()
    await stage.ask(commit(group, -1, "", At(topic, 0, 5)))
    await stage.ask(pulse(group, "one", 1))
    await stage.ask(inspected(group), "admin")
    await stage.ask(enter(group, "one", topic))
    await stage.ask(inspected(group), "admin")
    await stage.ask(offsets(Of(group)))
    await stage.ask(listed(), "admin")


@script()
async def an_emptied_consumer_group_becomes_classic(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 1)
    group = stage.group()
    one = Consumer(stage, "one")
    await one.enter(topic)
    await one.commit(At(topic, 0, 5))
    await one.leave()
    await stage.ask(described(group), "admin")
    given = await stage.ask(join(group), "b")
    await stage.ask(listed(), "admin")
    await one.beat()
    joined = await stage.ask(join(group, given.member_id), "b")
    await stage.ask(sync(group, joined.generation_id, joined.member_id), "b")
    await stage.ask(described(group), "admin")
    await stage.ask(inspected(group), "admin")
    await stage.ask(offsets(Of(group)))
    await stage.ask(leave(group, joined.member_id), "b")
    await one.enter(topic)
    await one.leave()
    old = await stage.ask(join(group, version=3), "b")
    await stage.ask(sync(group, old.generation_id, old.member_id), "b")


@script()
async def an_emptied_consumer_group_is_asked_as_classic(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 1)
    group = stage.group()
    one = Consumer(stage, "one")
    await one.enter(topic)
    await one.leave()
    await stage.ask(beat(group, one.epoch, "one"))
    await stage.ask(sync(group, one.epoch, "one"))
    await stage.ask(leave(group, "one"))
    await stage.ask(join(group, "one"))
    await stage.ask(listed(), "admin")
    await stage.ask(join(group, kind=""))
    await stage.ask(join(group, "nobody", instance="i"))
    await stage.ask(listed(), "admin")
