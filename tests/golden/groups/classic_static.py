"""Scripts of the classic protocol: members with an instance id."""

from tests.golden.groups.asks import beat, described, join, leave, subscription, sync
from tests.golden.groups.members import has_members, rebalancing
from tests.golden.groups.offset_asks import At, commit
from tests.golden.groups.script import script
from tests.golden.groups.stage import Stage

from lakelog.wire.messages.join_group import JoinGroupResponse

OTHER = [("range", subscription("u"))]
CHANGED = [("range", subscription("t", "u"))]


async def settled(stage: Stage, group: str, version: int = 9) -> JoinGroupResponse:
    """A stable group of one static member, `i`."""
    joined = await stage.ask(join(group, instance="i", version=version))
    member, generation = joined.member_id, joined.generation_id
    await stage.ask(sync(group, generation, member, {member: b"mine"}, instance="i"))
    return joined


async def pair(stage: Stage, group: str) -> tuple[JoinGroupResponse, JoinGroupResponse]:
    """A stable group of two static members: `i` leads, `j` follows."""
    first = await settled(stage, group)
    parked = await stage.send(join(group, instance="j", protocols=OTHER), "b")
    await rebalancing(stage, group, first)
    led = await stage.ask(join(group, first.member_id, instance="i"))
    followed = await stage.answer(parked)
    given = {led.member_id: b"one", followed.member_id: b"two"}
    waiting = await stage.send(
        sync(group, followed.generation_id, followed.member_id, instance="j"), "b"
    )
    await stage.ask(sync(group, led.generation_id, led.member_id, given, instance="i"))
    await stage.answer(waiting)
    return led, followed


@script()
async def a_static_leader_is_replaced(stage: Stage) -> None:
    group = stage.group()
    topic, _ = await stage.topic("t", 1)
    old = await settled(stage, group)
    new = await stage.ask(join(group, instance="i"), "b")
    generation = new.generation_id
    for member in (old.member_id, new.member_id):
        for instance in ("i", None, "j"):
            await stage.ask(beat(group, generation, member, instance=instance))
            await stage.ask(
                commit(group, generation, member, At(topic, 0, 1), instance=instance, version=8)
            )
            await stage.ask(sync(group, generation, member, instance=instance))
    await stage.ask(join(group, old.member_id, instance="i"))
    await stage.ask(join(group, old.member_id))
    await stage.ask(leave(group, instances={"i": old.member_id}))
    await stage.ask(leave(group, old.member_id))
    await stage.ask(described(group), "admin")


@script()
async def a_static_leader_is_replaced_in_older_versions(stage: Stage) -> None:
    for version in range(5, 10):
        group = stage.group(str(version))
        await settled(stage, group, version)
        new = await stage.ask(join(group, instance="i", version=version), "b")
        await stage.ask(sync(group, new.generation_id, new.member_id, instance="i"), "b")
        await stage.ask(join(group, new.member_id, instance="i", version=version), "b")


@script()
async def a_static_follower_is_replaced(stage: Stage) -> None:
    group = stage.group()
    led, followed = await pair(stage, group)
    new = await stage.ask(join(group, instance="j", protocols=OTHER), "c")
    await stage.ask(beat(group, led.generation_id, led.member_id, instance="i"))
    await stage.ask(beat(group, led.generation_id, followed.member_id, instance="j"), "b")
    await stage.ask(sync(group, new.generation_id, new.member_id, instance="j"), "c")
    await stage.ask(join(group, new.member_id, instance="j", protocols=OTHER), "c")
    await stage.ask(described(group), "admin")


@script()
async def a_static_member_is_replaced_with_other_metadata(stage: Stage) -> None:
    group = stage.group()
    led, _ = await pair(stage, group)
    new = await stage.ask(join(group, instance="j", protocols=CHANGED), "c")
    await stage.ask(beat(group, led.generation_id, led.member_id, instance="i"))
    await stage.ask(described(group), "admin")
    # Another protocol than the one that was chosen: that cannot go without a rebalance.
    both = [("range", subscription("t")), ("sticky", subscription("t"))]
    alone = stage.group("alone")
    first = await stage.ask(join(alone, instance="i", protocols=both))
    member = first.member_id
    await stage.ask(sync(alone, first.generation_id, member, {member: b"x"}, instance="i"))
    other = [("sticky", subscription("t"))]
    new = await stage.ask(join(alone, instance="i", protocols=other), "b")
    await stage.ask(sync(alone, new.generation_id, new.member_id, instance="i", name="sticky"), "b")
    await stage.ask(described(alone), "admin")


@script()
async def a_static_member_is_replaced_before_the_sync(stage: Stage) -> None:
    group = stage.group()
    old = await stage.ask(join(group, instance="i"))
    new = await stage.ask(join(group, instance="i"), "b")
    await stage.ask(sync(group, old.generation_id, old.member_id, instance="i"))
    given = {new.member_id: b"mine"}
    await stage.ask(sync(group, new.generation_id, new.member_id, given, instance="i"), "b")
    await stage.ask(described(group), "admin")


@script()
async def a_static_member_is_replaced_while_its_sync_waits(stage: Stage) -> None:
    group = stage.group()
    first = await settled(stage, group)
    parked = await stage.send(join(group, instance="j", protocols=OTHER), "b")
    await rebalancing(stage, group, first)
    led = await stage.ask(join(group, first.member_id, instance="i"))
    followed = await stage.answer(parked)
    waiting = await stage.send(
        sync(group, followed.generation_id, followed.member_id, instance="j"), "b"
    )
    held = await stage.send(join(group, instance="j", protocols=OTHER), "c")
    await stage.answer(waiting)
    await rebalancing(stage, group, led)
    led = await stage.ask(join(group, led.member_id, instance="i"))
    await stage.answer(held)
    await stage.ask(described(group), "admin")


@script()
async def a_static_member_is_replaced_while_its_join_waits(stage: Stage) -> None:
    group = stage.group()
    led, followed = await pair(stage, group)
    parked = await stage.send(join(group, led.member_id, instance="i"))
    await rebalancing(stage, group, followed, "b")
    held = await stage.send(join(group, instance="i"), "c")
    await stage.answer(parked)
    await stage.ask(join(group, followed.member_id, instance="j", protocols=OTHER), "b")
    await stage.answer(held)
    await has_members(stage, group, 2)


@script()
async def static_members_that_are_unknown(stage: Stage) -> None:
    group = stage.group()
    await stage.ask(join(group, "nobody", instance="i"))
    await stage.ask(leave(group, instances={"i": ""}))
    joined = await settled(stage, group)
    await stage.ask(join(group, "nobody", instance="j"))
    await stage.ask(join(group, "nobody", instance="i"))
    await stage.ask(join(group, joined.member_id, instance="j"))
    await stage.ask(join(group, joined.member_id))
    await stage.ask(beat(group, joined.generation_id, joined.member_id, instance="j"))
    await stage.ask(beat(group, joined.generation_id, "nobody", instance="i"))
    await stage.ask(beat(group, joined.generation_id, "", instance="i"))
    await stage.ask(leave(group, instances={"j": "", "i": "nobody"}))
    await stage.ask(leave(group, instances={"j": joined.member_id}))
    await stage.ask(leave(group, "", version=3))
    await stage.ask(leave(group, instances={"i": ""}, reason="an administrator"))
    await stage.ask(described(group), "admin")
    await stage.ask(join(group, joined.member_id, instance="i"))
    await stage.ask(join(group, instance="i"))


@script()
async def a_static_member_joins_again_with_its_id(stage: Stage) -> None:
    group = stage.group()
    led, followed = await pair(stage, group)
    await stage.ask(
        join(group, followed.member_id, instance="j", protocols=OTHER, reason="again"), "b"
    )
    await stage.ask(beat(group, led.generation_id, led.member_id, instance="i"))
    parked = await stage.send(join(group, led.member_id, instance="i"))
    await rebalancing(stage, group, followed, "b")
    await stage.ask(join(group, followed.member_id, instance="j", protocols=OTHER), "b")
    led = await stage.answer(parked)
    await stage.ask(join(group, led.member_id, instance="i"))
    await stage.ask(leave(group, instances={"i": led.member_id, "j": followed.member_id}))
    await stage.ask(described(group), "admin")
