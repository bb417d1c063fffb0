"""Scripts of the classic protocol: two members and more, in every state of the group."""

from tests.golden.groups.asks import assignment, beat, described, join, leave, subscription, sync
from tests.golden.groups.members import (
    admitted,
    alone,
    has_members,
    knocking,
    rebalancing,
    synced,
)
from tests.golden.groups.script import script
from tests.golden.groups.stage import Stage

from lakelog.wire.messages.join_group import JoinGroupResponse

OTHER = [("range", subscription("u"))]
CHANGED = [("range", subscription("t", "u"))]


async def pair(stage: Stage, group: str) -> tuple[JoinGroupResponse, JoinGroupResponse]:
    """A stable group of two: `a` leads, `b` follows."""
    first = await alone(stage, group)
    _, parked = await knocking(stage, group, first, protocols=OTHER)
    led = await stage.ask(join(group, first.member_id))
    followed = await stage.answer(parked)
    waiting = await stage.send(sync(group, followed.generation_id, followed.member_id), "b")
    await synced(stage, group, led)
    await stage.answer(waiting)
    return led, followed


@script()
async def a_second_member_joins(stage: Stage) -> None:
    group = stage.group()
    first = await alone(stage, group)
    second, parked = await knocking(stage, group, first, protocols=OTHER)
    await stage.ask(described(group), "admin")
    await stage.ask(sync(group, first.generation_id, first.member_id))
    await stage.ask(sync(group, first.generation_id + 1, first.member_id))
    await stage.ask(sync(group, first.generation_id, "nobody"))
    await stage.ask(beat(group, first.generation_id + 1, first.member_id))
    await stage.ask(beat(group, first.generation_id, second))
    led = await stage.ask(join(group, first.member_id, reason="told to"))
    followed = await stage.answer(parked)
    await stage.ask(described(group), "admin")
    await stage.ask(beat(group, led.generation_id, second), "b")
    waiting = await stage.send(sync(group, followed.generation_id, second), "b")
    await synced(stage, group, led)
    await stage.answer(waiting)
    await stage.ask(described(group), "admin")
    await stage.ask(sync(group, followed.generation_id, second), "b")
    await stage.ask(sync(group, led.generation_id, led.member_id))


@script()
async def a_sync_that_does_not_fit(stage: Stage) -> None:
    group = stage.group()
    await stage.ask(sync("", 1, "nobody"))
    await stage.ask(sync(group, 1, "nobody"))
    joined = await admitted(stage, group)
    member, generation = joined.member_id, joined.generation_id
    await stage.ask(sync(group, generation + 1, member))
    await stage.ask(sync(group, generation - 1, member, version=0))
    await stage.ask(sync(group, generation, "nobody"))
    await stage.ask(sync(group, generation, member, instance="i"))
    await stage.ask(sync(group, generation, member, name="sticky"))
    await stage.ask(sync(group, generation, member, kind="connect"))
    await stage.ask(sync(group, generation, member, name=None))
    await stage.ask(sync(group, generation, member, kind=None))
    await stage.ask(sync(group, generation, member, {"nobody": b"x"}, kind="consumer"))
    await stage.ask(sync(group, generation, member, {member: b"late"}))
    await stage.ask(described(group), "admin")
    await stage.ask(sync(group, generation, member, version=4))


@script()
async def a_leader_joins_again_unchanged(stage: Stage) -> None:
    group = stage.group()
    led, followed = await pair(stage, group)
    parked = await stage.send(join(group, led.member_id))
    await rebalancing(stage, group, followed, "b")
    again = await stage.ask(join(group, followed.member_id, protocols=OTHER), "b")
    led = await stage.answer(parked)
    waiting = await stage.send(sync(group, again.generation_id, again.member_id), "b")
    await synced(stage, group, led)
    await stage.answer(waiting)


@script()
async def a_follower_joins_again_unchanged(stage: Stage) -> None:
    group = stage.group()
    led, followed = await pair(stage, group)
    await stage.ask(join(group, followed.member_id, protocols=OTHER), "b")
    await stage.ask(beat(group, led.generation_id, led.member_id))
    await stage.ask(sync(group, followed.generation_id, followed.member_id), "b")
    await stage.ask(join(group, followed.member_id, protocols=OTHER, version=5), "b")


@script()
async def a_follower_joins_again_changed(stage: Stage) -> None:
    group = stage.group()
    led, followed = await pair(stage, group)
    parked = await stage.send(join(group, followed.member_id, protocols=CHANGED), "b")
    await rebalancing(stage, group, led)
    led = await stage.ask(join(group, led.member_id))
    followed = await stage.answer(parked)
    await stage.ask(described(group), "admin")
    await stage.ask(join(group, led.member_id))
    await stage.ask(join(group, followed.member_id, protocols=CHANGED), "b")
    waiting = await stage.send(sync(group, followed.generation_id, followed.member_id), "b")
    await synced(stage, group, led)
    await stage.answer(waiting)


@script()
async def changed_metadata_before_the_sync(stage: Stage) -> None:
    group = stage.group()
    first = await alone(stage, group)
    _, parked = await knocking(stage, group, first, protocols=OTHER)
    led = await stage.ask(join(group, first.member_id))
    followed = await stage.answer(parked)
    waiting = await stage.send(sync(group, followed.generation_id, followed.member_id), "b")
    held = await stage.send(join(group, led.member_id, protocols=CHANGED))
    await stage.answer(waiting)
    await stage.ask(join(group, followed.member_id, protocols=OTHER), "b")
    led = await stage.answer(held)
    await synced(stage, group, led)


@script()
async def a_lone_leader_joins_again(stage: Stage) -> None:
    group = stage.group()
    led = await alone(stage, group)
    led = await stage.ask(join(group, led.member_id))
    await stage.ask(join(group, led.member_id))
    await synced(stage, group, led)
    led = await stage.ask(join(group, led.member_id, protocols=CHANGED))
    led = await stage.ask(join(group, led.member_id))
    await synced(stage, group, led)
    await stage.ask(described(group), "admin")


@script()
async def a_leader_leaves(stage: Stage) -> None:
    group = stage.group()
    led, followed = await pair(stage, group)
    await stage.ask(leave(group, led.member_id))
    await stage.ask(beat(group, followed.generation_id, followed.member_id), "b")
    await stage.ask(described(group), "admin")
    led = await stage.ask(join(group, followed.member_id, protocols=OTHER), "b")
    await synced(stage, group, led, "b")
    await stage.ask(leave(group, led.member_id), "b")
    await stage.ask(described(group), "admin")
    await stage.ask(beat(group, led.generation_id, led.member_id), "b")


@script()
async def a_member_leaves_before_it_joined_again(stage: Stage) -> None:
    group = stage.group()
    first = await alone(stage, group)
    _, parked = await knocking(stage, group, first, protocols=OTHER)
    await stage.ask(leave(group, first.member_id))
    led = await stage.answer(parked)
    await synced(stage, group, led, "b")


@script()
async def a_leader_leaves_before_its_sync(stage: Stage) -> None:
    group = stage.group()
    first = await alone(stage, group)
    _, parked = await knocking(stage, group, first, protocols=OTHER)
    led = await stage.ask(join(group, first.member_id))
    followed = await stage.answer(parked)
    waiting = await stage.send(sync(group, followed.generation_id, followed.member_id), "b")
    await stage.ask(leave(group, led.member_id))
    await stage.answer(waiting)
    led = await stage.ask(join(group, followed.member_id, protocols=OTHER), "b")
    await synced(stage, group, led, "b")


@script()
async def heartbeats_in_every_state(stage: Stage) -> None:
    group = stage.group()
    for version in range(5):
        await stage.ask(beat("", 1, "nobody", version=version))
        await stage.ask(beat(group, 1, "nobody", version=version))
        await stage.ask(beat(group, -1, "", version=version))
    joined = await admitted(stage, group)
    member, generation = joined.member_id, joined.generation_id
    await stage.ask(beat(group, generation, member))
    await stage.ask(beat(group, generation - 1, member))
    await stage.ask(beat(group, generation + 1, member))
    await stage.ask(beat(group, generation, ""))
    await stage.ask(beat(group, generation, "nobody"))
    await stage.ask(beat(group, generation, member, instance="i"))
    await synced(stage, group, joined)
    await stage.ask(beat(group, generation, member))
    await stage.ask(beat(group, generation - 1, member))
    await stage.ask(beat(group, -1, member))
    await stage.ask(leave(group, member))
    await stage.ask(beat(group, generation, member))
    await stage.ask(beat(group, -1, ""))


@script()
async def leaving_in_every_version(stage: Stage) -> None:
    group = stage.group()
    for version in range(6):
        await stage.ask(leave("", "nobody", version=version))
        await stage.ask(leave(stage.group("unknown"), "nobody", version=version))
        joined = await alone(stage, group)
        await stage.ask(leave(group, "nobody", version=version))
        await stage.ask(leave(group, joined.member_id, version=version))
        await stage.ask(leave(group, joined.member_id, version=version))
    led, followed = await pair(stage, group)
    await stage.ask(leave(group, led.member_id, "nobody", followed.member_id, led.member_id))
    await stage.ask(leave(group))
    await stage.ask(described(group), "admin")


@script()
async def a_cooperative_rebalance(stage: Stage) -> None:
    group = stage.group()

    def owning(generation: int, *partitions: int) -> list[tuple[str, bytes]]:
        blob = subscription("t", version=3, owned={"t": partitions}, generation=generation)
        return [("cooperative-sticky", blob)]

    first = await admitted(stage, group, protocols=owning(-1))
    one, all_of_it = first.member_id, {first.member_id: assignment({"t": range(4)})}
    named = "cooperative-sticky"
    await stage.ask(sync(group, first.generation_id, one, all_of_it, name=named))
    two, parked = await knocking(stage, group, first, protocols=owning(-1))
    led = await stage.ask(join(group, one, protocols=owning(first.generation_id, 0, 1, 2, 3)))
    followed = await stage.answer(parked)
    waiting = await stage.send(sync(group, followed.generation_id, two, name=named), "b")
    less = {one: assignment({"t": (0, 1)}), two: assignment({})}
    await stage.ask(sync(group, led.generation_id, one, less, name=named))
    await stage.answer(waiting)
    # It gave up two partitions, and joins again at once so that the other can have them.
    held = await stage.send(join(group, one, protocols=owning(led.generation_id, 0, 1)))
    await rebalancing(stage, group, followed, "b")
    followed = await stage.ask(join(group, two, protocols=owning(followed.generation_id)), "b")
    led = await stage.answer(held)
    waiting = await stage.send(sync(group, followed.generation_id, two, name=named), "b")
    halves = {one: assignment({"t": (0, 1)}), two: assignment({"t": (2, 3)})}
    await stage.ask(sync(group, led.generation_id, one, halves, name=named))
    await stage.answer(waiting)
    await stage.ask(described(group), "admin")


@script()
async def three_members_join_and_one_is_forgotten_by_the_leader(stage: Stage) -> None:
    group = stage.group()
    led, followed = await pair(stage, group)
    third = [("range", subscription("v"))]
    three, parked = await knocking(stage, group, led, "c", third)
    held = await stage.send(join(group, followed.member_id, protocols=OTHER), "b")
    led = await stage.ask(join(group, led.member_id))
    await stage.answer(parked)
    await stage.answer(held)
    given = {led.member_id: b"one", followed.member_id: b"two"}
    await stage.ask(sync(group, led.generation_id, led.member_id, given))
    await stage.ask(sync(group, led.generation_id, three), "c")
    await stage.ask(sync(group, led.generation_id, followed.member_id), "b")
    await has_members(stage, group, 3)
