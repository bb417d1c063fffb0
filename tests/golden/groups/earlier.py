"""Scripts that were first recorded from Kafka 4.1.1, with the ids of the day taken from answers.

What that recording asked about groups in four sessions, in its order; repetitions are left out.
"""

from tests.golden.groups.asks import (
    beat,
    deleted,
    described,
    enter,
    find,
    inspected,
    join,
    leave,
    listed,
    pulse,
    subscription,
    sync,
)
from tests.golden.groups.members import admitted, alone
from tests.golden.groups.offset_asks import At, Of, commit, forget, offsets
from tests.golden.groups.script import script
from tests.golden.groups.stage import Stage

from lakelog.wire.messages.join_group import JoinGroupResponse

TEN_S = 10_000


async def committing(stage: Stage, topic: str, joined: JoinGroupResponse) -> None:
    """What the first session committed, and tried to."""
    group, simple, unknown = stage.group("g2"), stage.group("simple"), stage.group("nog")
    member, generation = joined.member_id, joined.generation_id
    for said, name in ((generation, member), (0, member), (-1, ""), (generation, "zz")):
        await stage.ask(commit(group, said, name, At(topic, 0, 5), version=8))
    for one in (
        At(topic, 0, 5, "x" * 4096),
        At(topic, 0, 5, "x" * 4097),
        At("nosuch", 0, 5),
        At(topic, 99, 5),
        At(topic, 0, -5),
        At(topic, 0, 5, None),
    ):
        await stage.ask(commit(group, generation, member, one, version=8))
    for version in (6, 8, 9):
        await stage.ask(commit(unknown, 5, "m", At(topic, 0, 5), version=version))
    await stage.ask(commit(simple, -1, "", At(topic, 0, 5), version=8))
    await stage.ask(commit("", -1, "", At(topic, 0, 5), version=8))


@script()
async def earlier_first_a_classic_member(stage: Stage) -> None:
    topic, _ = await stage.topic("p", 4)
    group, simple, unknown = stage.group("g2"), stage.group("simple"), stage.group("nog")
    blob = [("range", subscription(topic, version=0))]
    await stage.ask(find(group, ""))
    await stage.ask(find(group, version=2))
    await stage.ask(find(group, kind=7))
    await stage.ask(join("", protocols=blob, session_ms=TEN_S))
    await stage.ask(join(group, protocols=blob, session_ms=100))
    await stage.ask(join(group, "abc", protocols=blob))
    await stage.ask(join(group, protocols=()))
    await stage.ask(join(group, protocols=blob, kind=""))
    joined = await admitted(stage, group, protocols=blob)
    member, generation = joined.member_id, joined.generation_id
    for said, name in ((generation, member), (0, member), (generation, "zz")):
        await stage.ask(beat(group, said, name))
    await stage.ask(commit(group, generation, member, At(topic, 0, 5), version=8))
    await stage.ask(sync(group, 7, member))
    await stage.ask(sync(group, generation, member, name="roundrobin"))
    await stage.ask(sync(group, generation, member, name=None))
    await stage.ask(sync(group, generation, member, {member: b"assign"}))
    await stage.ask(sync(group, generation, member))
    await committing(stage, topic, joined)
    await stage.ask(described(group, unknown, operations=True))
    await stage.ask(described(group, unknown, version=5))
    for states in ((), ("Stable",), ("stable", "EMPTY"), ("bogus",)):
        await stage.ask(listed(states=states))
    for types in (("classic",), ("CONSUMER",), ("bogus",)):
        await stage.ask(listed(types=types))
    asked = Of(group, {topic: (0, 3), "nosuch": (0,)})
    await stage.ask(offsets(Of(group), Of(unknown), asked, version=8, stable=True))
    await stage.ask(offsets(Of(unknown), version=5))
    await stage.ask(deleted(group, unknown, simple))
    await stage.ask(leave(group, "zz", member, reason="bye"))
    await stage.ask(leave(group, "zz", version=1))
    await stage.ask(leave(unknown, "zz", version=1))
    await stage.ask(beat(group, generation, member))
    await stage.ask(beat(unknown, generation, member))
    await stage.ask(sync(group, generation, member))


@script()
async def earlier_then_consumers(stage: Stage) -> None:
    topic, topic_id = await stage.topic("zzd", 4)
    group = stage.group("k1")
    await stage.ask(pulse(group, "mA", 5))
    await stage.ask(enter(group, "", topic))
    first = await stage.ask(enter(group, "mA", topic))
    epoch = first.member_epoch
    await stage.ask(pulse(group, "mA", epoch))
    await stage.ask(enter(group, "mA", topic, epoch=epoch))
    await stage.ask(pulse(group, "mA", epoch, owned={topic_id: range(4)}))
    second = await stage.ask(enter(group, "mB", topic))
    await stage.ask(pulse(group, "mB", second.member_epoch))
    await stage.ask(pulse(group, "mA", epoch, owned={topic_id: (0, 1)}))
    await stage.ask(pulse(group, "mA", epoch + 2))
    await stage.ask(pulse(group, "zz", epoch + 2))
    third = await stage.ask(enter(group, "mS1", topic, instance="i1"))
    await stage.ask(enter(group, "mS2", topic, instance="i1"))
    await stage.ask(pulse(group, "mS1", -2, instance="i1"))
    await stage.ask(enter(group, "mS2", topic, instance="i1"))
    await stage.ask(pulse(group, "mS1", third.member_epoch, instance="i1"))
    await stage.ask(pulse(group, "mB", -1))
    await stage.ask(pulse(group, "mA", -3))
    await stage.ask(inspected(group, stage.group("g1"), stage.group("nog"), operations=True))
    await stage.ask(join(group))
    await stage.ask(offsets(Of(group, None, "mA", epoch)))
    await stage.ask(offsets(Of(group, None, "zz", epoch)))


@script()
async def earlier_then_static_members_and_old_versions(stage: Stage) -> None:
    topic, _ = await stage.topic("p", 1)
    static, forgotten, old = stage.group("st1"), stage.group("od1"), stage.group("old1")
    one = await stage.ask(join(static, instance="i1"))
    given = {one.member_id: b"A"}
    await stage.ask(sync(static, one.generation_id, one.member_id, given, instance="i1"))
    two = await stage.ask(join(static, instance="i1"))
    await stage.ask(beat(static, one.generation_id, one.member_id, instance="i1"))
    await stage.ask(beat(static, one.generation_id, one.member_id))
    await stage.ask(sync(static, two.generation_id, two.member_id, instance="i1"))
    await stage.ask(join(static, instance="i1", version=8))
    await stage.ask(join(static, one.member_id, instance="i1"))
    await stage.ask(leave(static, instances={"i1": "", "nope": ""}, reason="admin"))
    await stage.ask(forget(stage.group("nog"), {topic: (0,)}))
    joined = await alone(stage, forgotten, protocols=[("range", subscription(topic, version=0))])
    member, generation = joined.member_id, joined.generation_id
    await stage.ask(commit(forgotten, generation, member, At(topic, 0, 5), version=8))
    await stage.ask(forget(forgotten, {topic: (0,)}))
    await stage.ask(forget(forgotten, {"nosuch": (0,)}))
    await stage.ask(join(old, version=3))
    await stage.ask(join(old, "zz", version=3))


@script()
async def earlier_at_last_both_protocols(stage: Stage) -> None:
    topic, _ = await stage.topic("zzd", 4)
    newer, classic, connect = stage.group("k9"), stage.group("c9"), stage.group("c10")
    await stage.ask(pulse(newer, "mA", 0))
    joined = await stage.ask(enter(newer, "mA", topic))
    epoch = joined.member_epoch
    for member, said in (("mA", epoch), ("mA", 6), ("zz", epoch), (None, -1), ("", -1)):
        await stage.ask(offsets(Of(newer, {topic: (0,)}, member, said)))
    await stage.ask(commit(newer, epoch, "mA", At(topic, 0, 5)))
    await stage.ask(commit(newer, epoch, "mA", At(topic, 0, 5), version=8))
    for member, said in (("mA", epoch + 1), ("mA", 0), ("zz", epoch), ("", -1)):
        await stage.ask(commit(newer, said, member, At(topic, 0, 5)))
    await alone(stage, classic)
    await stage.ask(enter(classic, "mZ", topic))
    x = [("x", b"1")]
    given = await stage.ask(join(connect, kind="connect", protocols=x))
    await stage.ask(join(connect, given.member_id, kind="connect", protocols=x))
    await stage.ask(enter(connect, "mZ", topic))
    await stage.ask(join(connect))
    await stage.ask(join(connect, kind="connect", protocols=[("y", b"1")]))
