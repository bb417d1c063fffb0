"""Scripts of the classic protocol: joining, being refused, versions."""

from tests.golden.groups.asks import (
    beat,
    deleted,
    described,
    join,
    leave,
    listed,
    subscription,
    sync,
)
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

OTHER = subscription("u")


@script()
async def a_member_gets_an_id_and_joins_with_it(stage: Stage) -> None:
    group = stage.group()
    given = await stage.ask(join(group, reason="first"))
    await stage.ask(described(group), "admin")
    joined = await stage.ask(join(group, given.member_id))
    await stage.ask(beat(group, joined.generation_id, joined.member_id))
    await stage.ask(described(group), "admin")
    await synced(stage, group, joined)
    await stage.ask(beat(group, joined.generation_id, joined.member_id))
    await stage.ask(described(group, operations=True), "admin")
    await stage.ask(leave(group, joined.member_id, reason="done"))
    await stage.ask(described(group), "admin")
    await stage.ask(join(group, joined.member_id))
    again = await admitted(stage, group)
    await stage.ask(sync(group, again.generation_id, again.member_id))


@script()
async def old_versions_join_without_an_id(stage: Stage) -> None:
    for version in range(4):
        group = stage.group(str(version))
        joined = await stage.ask(join(group, version=version))
        member, generation = joined.member_id, joined.generation_id
        given = {member: b"all"}
        await stage.ask(sync(group, generation, member, given, version=min(version, 2)))
        await stage.ask(beat(group, generation, member, version=min(version, 2)))
        await stage.ask(join(group, member, version=version))
        await stage.ask(join(group, "nobody", version=version))
        await stage.ask(leave(group, member, version=min(version, 2)))
        await stage.ask(leave(group, member, version=min(version, 2)))


@script()
async def every_newer_version_joins_in_two_steps(stage: Stage) -> None:
    for version in range(4, 10):
        group = stage.group(str(version))
        given = await stage.ask(join(group, version=version))
        joined = await stage.ask(join(group, given.member_id, version=version))
        member, generation = joined.member_id, joined.generation_id
        older = min(version - 1, 5)
        await stage.ask(sync(group, generation, member, {member: b"all"}, version=older))
        await stage.ask(sync(group, generation + 1, member, version=older))
        await stage.ask(beat(group, generation, member, version=min(version - 1, 4)))
        await stage.ask(beat(group, generation + 1, member, version=min(version - 1, 4)))
        await stage.ask(described(group, version=version - 3), "admin")
        await stage.ask(leave(group, member, version=min(version - 1, 5)))


@script()
async def joins_that_are_refused(stage: Stage) -> None:
    group = stage.group()
    for version in (0, 5, 9):
        await stage.ask(join("", version=version))
        await stage.ask(join(group, session_ms=100, version=version))
        await stage.ask(join(group, session_ms=1_800_001, version=version))
        await stage.ask(join(group, session_ms=5_999, version=version))
        await stage.ask(join(group, protocols=(), version=version))
        await stage.ask(join(group, kind="", version=version))
        await stage.ask(join(group, "nobody", version=version))
    await stage.ask(described(group), "admin")
    await stage.ask(join(group, session_ms=6_000))
    await stage.ask(join(group, session_ms=1_800_000))
    await stage.ask(join(group, "nobody"))
    await stage.ask(join(group, instance="i", member="nobody"))


@script()
async def protocols_that_do_not_fit(stage: Stage) -> None:
    group = stage.group()
    first = await alone(stage, group)
    await stage.ask(join(group, kind="connect"), "b")
    await stage.ask(join(group, protocols=[("sticky", OTHER)]), "b")
    await stage.ask(join(group, protocols=[("sticky", OTHER)], version=3), "b")
    await stage.ask(join(group, protocols=[("sticky", OTHER)], instance="i"), "b")
    given = await stage.ask(join(group, protocols=[("sticky", OTHER), ("range", OTHER)]), "b")
    await stage.ask(join(group, given.member_id, protocols=[("sticky", OTHER)]), "b")
    await stage.ask(join(group, first.member_id, protocols=[("sticky", OTHER)]))
    await stage.ask(leave(group, given.member_id), "b")
    await stage.ask(leave(group, first.member_id))
    await stage.ask(described(group), "admin")
    await admitted(stage, group, protocols=[("x", b"\x00\xff")])
    await stage.ask(join(group, kind="connect", protocols=[("x", b"\x00\xff")]), "b")


@script()
async def another_protocol_type_in_an_emptied_group(stage: Stage) -> None:
    group = stage.group()
    first = await alone(stage, group)
    await stage.ask(leave(group, first.member_id))
    await stage.ask(described(group), "admin")
    x = [("x", b"1")]
    given = await stage.ask(join(group, kind="connect", protocols=x))
    await stage.ask(join(group, given.member_id, kind="connect", protocols=x))
    await stage.ask(described(group), "admin")


@script()
async def the_protocol_that_most_members_vote_for(stage: Stage) -> None:
    group = stage.group()
    likes_sticky = [("sticky", b"s1"), ("range", b"r1"), ("own", b"o1")]
    likes_range = {
        "b": [("range", b"r2"), ("sticky", b"s2")],
        "c": [("range", b"r3"), ("sticky", b"s3"), ("other", b"o3")],
    }
    first = await admitted(stage, group, "a", likes_sticky)
    asked = {}
    for on, protocols in likes_range.items():
        given = await stage.ask(join(group, protocols=protocols), on)
        asked[on] = given.member_id
    parked = [
        await stage.send(join(group, asked[on], protocols=protocols), on)
        for on, protocols in likes_range.items()
    ]
    await has_members(stage, group, 3)
    led = await stage.ask(join(group, first.member_id, protocols=likes_sticky))
    for each in parked:
        await stage.answer(each)
    await synced(stage, group, led)
    await stage.ask(described(group), "admin")


@script()
async def an_issued_id_does_not_hold_up_the_first_rebalance(stage: Stage) -> None:
    group = stage.group()
    one = await stage.ask(join(group), "a")
    two = await stage.ask(join(group), "b")
    first = await stage.ask(join(group, one.member_id), "a")
    await stage.ask(described(group), "admin")
    parked = await stage.send(join(group, two.member_id, protocols=[("range", OTHER)]), "b")
    await rebalancing(stage, group, first)
    led = await stage.ask(join(group, one.member_id), "a")
    second = await stage.answer(parked)
    await synced(stage, group, led)
    await stage.ask(sync(group, second.generation_id, second.member_id), "b")


@script()
async def an_issued_id_holds_up_a_later_rebalance(stage: Stage) -> None:
    group = stage.group()
    first = await alone(stage, group)
    issued = await stage.ask(join(group), "b")
    three, parked = await knocking(stage, group, first, "c", [("range", subscription("v"))])
    held = await stage.send(join(group, first.member_id), "a")
    await stage.ask(described(group), "admin")
    second = await stage.ask(join(group, issued.member_id, protocols=[("range", OTHER)]), "b")
    led = await stage.answer(held)
    await stage.answer(parked)
    await synced(stage, group, led)
    await stage.ask(sync(group, second.generation_id, second.member_id), "b")
    await stage.ask(sync(group, second.generation_id, three), "c")


@script()
async def an_issued_id_that_leaves_lets_a_rebalance_go_on(stage: Stage) -> None:
    group = stage.group()
    first = await alone(stage, group)
    issued = await stage.ask(join(group), "b")
    _, parked = await knocking(stage, group, first, "c", [("range", subscription("v"))])
    held = await stage.send(join(group, first.member_id), "a")
    await stage.ask(described(group), "admin")
    await stage.ask(leave(group, issued.member_id), "b")
    led = await stage.answer(held)
    await stage.answer(parked)
    await synced(stage, group, led)


@script()
async def an_issued_id_that_is_not_used(stage: Stage) -> None:
    group = stage.group()
    one = await stage.ask(join(group), "a")
    two = await stage.ask(join(group), "b")
    await stage.ask(beat(group, 0, one.member_id), "a")
    await stage.ask(sync(group, 0, one.member_id), "a")
    await stage.ask(listed(), "admin")
    await stage.ask(leave(group, one.member_id), "a")
    await stage.ask(leave(group, two.member_id, version=2), "b")
    await stage.ask(join(group, one.member_id), "a")
    await stage.ask(described(group), "admin")
    three = await stage.ask(join(group), "c")
    await stage.ask(deleted(group), "admin")
    await stage.ask(join(group, three.member_id), "c")


@script()
async def other_programs_keep_their_own_bytes(stage: Stage) -> None:
    group = stage.group()
    mine = [("v2", bytes(range(256))), ("v1", b"")]
    given = await stage.ask(join(group, kind="connect", protocols=mine))
    joined = await stage.ask(join(group, given.member_id, kind="connect", protocols=mine))
    member, generation = joined.member_id, joined.generation_id
    await stage.ask(sync(group, generation, member, kind="consumer", name="v2"))
    await stage.ask(
        sync(group, generation, member, {member: b"\xff\x00\xfe"}, kind="connect", name="v2")
    )
    await stage.ask(described(group), "admin")
    await stage.ask(described(group, version=0), "admin")
