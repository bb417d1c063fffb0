"""Scripts of the newer protocol: who may commit and fetch offsets, and with which epoch."""

from tests.golden.groups.asks import deleted, pulse
from tests.golden.groups.consumer import Consumer
from tests.golden.groups.offset_asks import At, Of, commit, forget, offsets
from tests.golden.groups.script import script
from tests.golden.groups.stage import Stage


@script()
async def commits_of_consumers(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 2)
    group = stage.group()
    member = Consumer(stage, "one")
    await member.enter(topic)
    epoch, one = member.epoch, At(topic, 0, 1)
    for version in (2, 8, 9):
        for said in (epoch, epoch - 1, 0, epoch + 1, -1):
            await member.commit(one, epoch=said, version=version)
        await stage.ask(commit(group, epoch, "nobody", one, version=version))
        await stage.ask(commit(group, -1, "", one, version=version))
        await stage.ask(commit(group, epoch, "", one, version=version))
    await member.commit(At(topic, 9, 1), At("no-such-topic", 0, 1))
    await member.commit(At(topic, 1, 1, "x" * 4097))
    await stage.ask(commit(group, epoch, "one", one, instance="i"))
    await member.commit(At(topic_id, 1, 7), version=10)
    await member.commit(At(topic_id, 1, 7), version=10, epoch=epoch + 1)
    await stage.ask(forget(group, {topic: (0,), "no-such-topic": (0,)}))
    await stage.ask(deleted(group), "admin")
    await member.leave()
    await member.commit(one)
    await stage.ask(commit(group, -1, "", At(topic, 0, 5)))
    await stage.ask(commit(group, -1, "", At(topic, 0, 6), version=2))
    await stage.ask(commit(group, -1, "nobody", At(topic, 0, 7)))
    await stage.ask(commit(group, epoch, "", At(topic, 0, 8)))
    await stage.ask(offsets(Of(group)))
    await stage.ask(forget(group, {topic: (0,)}))
    await stage.ask(offsets(Of(group)))
    await stage.ask(deleted(group), "admin")


@script()
async def commits_with_an_older_epoch(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 4)
    other, _ = await stage.topic("u", 1)
    group = stage.group()
    one, two = Consumer(stage, "one"), Consumer(stage, "two", "b")
    await one.enter(topic)
    await two.enter(topic)
    before = one.epoch
    await one.beat(owned={topic_id: range(4)})
    every = [At(topic, number, 1) for number in range(4)]
    # Told to give up two, but not done yet.
    await one.commit(*every)
    await one.beat(owned={topic_id: (0, 1)})
    # At a new epoch now. What it has had since the epoch before may still be committed with it.
    await one.commit(*every, At(other, 0, 1), epoch=before)
    await one.commit(At(topic, 0, 2), epoch=before)
    await one.commit(At(topic, 3, 2), epoch=before)
    await one.commit(At(topic_id, 0, 2), At(topic_id, 3, 2), epoch=before, version=10)
    await one.commit(*every, epoch=before, version=8)
    await one.commit(*every)
    await one.commit(*every, epoch=before - 1)
    await one.commit(*every, epoch=0)
    await one.commit(*every, epoch=one.epoch + 1)
    await two.beat()
    await two.commit(*every, epoch=two.epoch - 1)
    await two.commit(*every)
    for said in (before, one.epoch, one.epoch + 1):
        await stage.ask(offsets(Of(group, {topic: range(4)}, "one", said)))
    await stage.ask(offsets(Of(group, None, "one", before), version=10))


@script()
async def commits_of_what_was_given_later(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 2)
    one, two = Consumer(stage, "one"), Consumer(stage, "two", "b")
    await one.enter(topic)
    await two.enter(topic)
    await one.beat(owned={topic_id: (0, 1)})
    await one.beat(owned={topic_id: (0,)})
    await two.beat()
    first = two.epoch
    await one.leave()
    await two.beat()
    await two.beat(owned={topic_id: (0, 1)})
    # One partition since its first epoch, the other since its second.
    await two.commit(At(topic, 0, 1), At(topic, 1, 1), epoch=first)
    await two.commit(At(topic, 0, 1), At(topic, 1, 1))
    await two.enter(topic)
    await two.commit(At(topic, 0, 2), At(topic, 1, 2), epoch=first)


@script()
async def offsets_for_consumers(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 2)
    group = stage.group()
    member = Consumer(stage, "one")
    await member.enter(topic)
    await member.commit(At(topic, 0, 5))
    now = member.epoch
    cases = (("one", now), ("one", 0), ("one", now + 1), ("nobody", now), ("", -1), ("one", -1))
    for name, epoch in cases:
        await stage.ask(offsets(Of(group, {topic: (0, 1)}, name, epoch), version=9))
        await stage.ask(offsets(Of(group, None, name, epoch), version=10))
    for version in (1, 7, 8):
        await stage.ask(offsets(Of(group, {topic: (0, 1)}), version=version))
    await stage.ask(offsets(Of(group), version=9))
    await stage.ask(offsets(Of(group, {topic_id: (0,)}, None, now), version=10))
    await stage.ask(pulse(group, "one", -1))
    await stage.ask(offsets(Of(group, {topic: (0,)}, "one", now), version=9))
    await stage.ask(offsets(Of(group, {topic: (0,)}), version=9))
