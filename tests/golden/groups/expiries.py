"""Scripts of what happens when somebody keeps silent: for a broker with short times."""

from tests.golden.groups.asks import (
    beat,
    described,
    enter,
    inspected,
    join,
    pulse,
    subscription,
    sync,
)
from tests.golden.groups.consumer import Consumer, has_partitions
from tests.golden.groups.members import admitted, has_members, rebalancing, synced
from tests.golden.groups.script import SHORT, script
from tests.golden.groups.stage import Stage

from lakelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from lakelog.wire.messages.heartbeat import HeartbeatResponse
from lakelog.wire.messages.join_group import JoinGroupResponse

OTHER = [("range", subscription("u"))]
LONG_MS = 60_000
SHORT_MS = 500


def unknown(found: HeartbeatResponse | ConsumerGroupHeartbeatResponse) -> bool:
    """Whether the member is known no more."""
    return found.error_code == 25


async def pair(
    stage: Stage, group: str, *, session_ms: int = LONG_MS, rebalance_ms: int = LONG_MS
) -> tuple[JoinGroupResponse, JoinGroupResponse]:
    """A group of two in its first generation, before anybody's sync; the times are `b`'s."""
    one = await stage.ask(join(group))
    two = await stage.ask(join(group, session_ms=session_ms, protocols=OTHER), "b")
    parked = await stage.send(join(group, one.member_id, rebalance_ms=rebalance_ms))
    await has_members(stage, group, 1)
    held = await stage.send(
        join(
            group,
            two.member_id,
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
            protocols=OTHER,
        ),
        "b",
    )
    return await stage.answer(parked), await stage.answer(held)


@script(SHORT)
async def members_that_come_within_the_initial_delay(stage: Stage) -> None:
    group = stage.group()
    led, followed = await pair(stage, group)
    await stage.ask(described(group), "admin")
    await synced(stage, group, led)
    await stage.ask(sync(group, followed.generation_id, followed.member_id), "b")


@script(SHORT)
async def a_session_ends(stage: Stage) -> None:
    group = stage.group()
    led, silent = await pair(stage, group, session_ms=SHORT_MS)
    waiting = await stage.send(sync(group, silent.generation_id, silent.member_id), "b")
    await synced(stage, group, led)
    await stage.answer(waiting)
    await rebalancing(stage, group, led)
    await stage.ask(described(group), "admin")
    await stage.ask(beat(group, silent.generation_id, silent.member_id), "b")
    await stage.ask(join(group, silent.member_id, protocols=OTHER), "b")
    led = await stage.ask(join(group, led.member_id))
    await synced(stage, group, led)


@script(SHORT)
async def the_last_session_ends(stage: Stage) -> None:
    group = stage.group()
    given = await stage.ask(join(group, session_ms=SHORT_MS))
    joined = await stage.ask(join(group, given.member_id, session_ms=SHORT_MS))
    await has_members(stage, group, 1)
    await has_members(stage, group, 0)
    await stage.ask(beat(group, joined.generation_id, joined.member_id))


@script(SHORT)
async def a_member_does_not_join_again_in_time(stage: Stage) -> None:
    group = stage.group()
    led, late = await pair(stage, group, rebalance_ms=SHORT_MS)
    await synced(stage, group, led)
    await stage.ask(sync(group, late.generation_id, late.member_id), "b")
    parked = await stage.send(join(group, led.member_id, rebalance_ms=SHORT_MS))
    await rebalancing(stage, group, late, "b")
    led = await stage.answer(parked)
    await stage.ask(beat(group, led.generation_id, late.member_id), "b")
    await stage.ask(join(group, late.member_id, protocols=OTHER), "b")
    await synced(stage, group, led)


@script(SHORT)
async def a_leader_does_not_sync_in_time(stage: Stage) -> None:
    group = stage.group()
    silent, followed = await pair(stage, group, rebalance_ms=SHORT_MS)
    waiting = await stage.send(sync(group, followed.generation_id, followed.member_id), "b")
    await stage.answer(waiting)
    await stage.ask(beat(group, silent.generation_id, silent.member_id))
    await stage.ask(sync(group, silent.generation_id, silent.member_id))
    await stage.ask(described(group), "admin")
    led = await stage.ask(join(group, followed.member_id, protocols=OTHER), "b")
    await synced(stage, group, led, "b")


@script(SHORT)
async def a_follower_does_not_sync_in_time(stage: Stage) -> None:
    group = stage.group()
    led, silent = await pair(stage, group, rebalance_ms=SHORT_MS)
    await synced(stage, group, led)
    await rebalancing(stage, group, led)
    await stage.ask(beat(group, silent.generation_id, silent.member_id), "b")
    await stage.ask(described(group), "admin")
    await stage.ask(join(group, led.member_id))


@script(SHORT)
async def an_issued_id_expires(stage: Stage) -> None:
    group = stage.group()
    first = await admitted(stage, group)
    await synced(stage, group, first)
    issued = await stage.ask(join(group, session_ms=SHORT_MS, protocols=OTHER), "b")
    # Its join is held up by the id that was issued and not used, until that one expires.
    led = await stage.ask(join(group, first.member_id))
    await stage.ask(join(group, issued.member_id, protocols=OTHER), "b")
    await synced(stage, group, led)


@script(SHORT)
async def a_static_member_is_not_dropped_from_a_rebalance(stage: Stage) -> None:
    group = stage.group()
    parked = await stage.send(join(group, instance="i", rebalance_ms=SHORT_MS))
    await has_members(stage, group, 1)
    held = await stage.send(join(group, instance="j", protocols=OTHER, rebalance_ms=SHORT_MS), "b")
    led, followed = await stage.answer(parked), await stage.answer(held)
    given = {led.member_id: b"one", followed.member_id: b"two"}
    await stage.ask(sync(group, led.generation_id, led.member_id, given, instance="i"))
    await stage.ask(sync(group, led.generation_id, followed.member_id, instance="j"), "b")
    changed = [("range", subscription("t", "u"))]
    # The other one keeps silent: it stays, and the generation begins without its join.
    await stage.ask(
        join(group, led.member_id, instance="i", protocols=changed, rebalance_ms=SHORT_MS)
    )
    await stage.ask(beat(group, led.generation_id, followed.member_id, instance="j"), "b")
    await stage.ask(described(group), "admin")


@script(SHORT)
async def a_classic_group_is_full(stage: Stage) -> None:
    group = stage.group()
    parked = []
    for number in range(3):
        mine = [("range", bytes([number]))]
        parked.append(await stage.send(join(group, version=3, protocols=mine), f"m{number}"))
        await has_members(stage, group, number + 1)
    await stage.ask(join(group, version=3), "more")
    await stage.ask(join(group, instance="i"), "more")
    given = await stage.ask(join(group), "more")
    await stage.ask(join(group, given.member_id), "more")
    for each in parked:
        await stage.answer(each)


@script(SHORT)
async def a_consumer_group_is_full(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 1)
    group = stage.group()
    for number in range(4):
        await stage.ask(enter(group, f"m{number}", topic))
    await stage.ask(enter(group, "m0", topic))
    await stage.ask(pulse(group, "m0", -1))
    await stage.ask(enter(group, "m4", topic))


@script(SHORT)
async def the_session_of_a_consumer_ends(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 1)
    group = stage.group()
    silent, one = Consumer(stage, "silent", "b"), Consumer(stage, "one")
    await silent.enter(topic)
    await one.enter(topic)
    await one.beat_until(has_partitions)
    await one.beat(owned={topic_id: (0,)})
    await silent.beat()
    await stage.ask(inspected(group), "admin")


@script(SHORT)
async def a_consumer_does_not_revoke_in_time(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 2)
    one, two = Consumer(stage, "one"), Consumer(stage, "two", "b")
    await one.enter(topic, rebalance_ms=SHORT_MS)
    await one.beat(owned={topic_id: (0, 1)})
    await two.enter(topic, rebalance_ms=SHORT_MS)
    # It goes on to beat, and goes on to own what it should give up.
    await one.beat_until(unknown, owned={topic_id: (0, 1)})


@script(SHORT)
async def a_static_consumer_does_not_come_back(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 1)
    group = stage.group()
    one = Consumer(stage, "one", instance="i")
    await one.enter(topic)
    await one.leave(-2)
    await stage.ask(inspected(group), "admin")
    await stage.until(lambda: inspected(group), lambda found: not found.groups[0].members, "admin")
    await one.beat()


@script(SHORT)
async def a_second_target_is_made_later(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 2)
    one, two = Consumer(stage, "one"), Consumer(stage, "two", "b")
    await one.enter(topic)
    await two.enter(topic)
    await one.beat_until(owned={topic_id: (0, 1)})
    await one.beat(owned={topic_id: (0,)})
    await two.beat_until(has_partitions)
    await stage.ask(inspected(stage.group()), "admin")
