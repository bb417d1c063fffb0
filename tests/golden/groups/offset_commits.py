"""Scripts of committed offsets in classic groups, and in groups that nobody joins."""

from tests.golden.groups.asks import deleted, described, join, leave, listed, subscription, sync
from tests.golden.groups.members import admitted, alone, knocking, synced
from tests.golden.groups.offset_asks import At, Of, commit, forget, offsets
from tests.golden.groups.script import script
from tests.golden.groups.stage import Ask, Stage

from lakelog.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

SOME_ID = bytes(15) + b"\x07"
EMOJI = "\N{GRINNING FACE}"  # two UTF-16 units, four bytes of UTF-8


@script()
async def commits_without_a_group(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 2)
    for version in range(2, 10):
        group = stage.group(str(version))
        one = At(topic, 0, 10 + version, "m", 3)
        await stage.ask(commit(group, 0, "", one, version=version))
        await stage.ask(commit(group, 5, "nobody", one, version=version))
        await stage.ask(commit(group, -1, "nobody", one, version=version))
        await stage.ask(offsets(Of(group), version=min(version, 9)))
        await stage.ask(commit(group, -1, "", one, version=version, retention_ms=1_000))
        await stage.ask(offsets(Of(group), version=min(version, 9)))
        await stage.ask(commit(group, 5, "nobody", one, version=version))
    await stage.ask(listed())
    await stage.ask(described(stage.group("9")))
    await stage.ask(commit("", -1, "", At(topic, 1, 1)))
    await stage.ask(commit("", 1, "nobody", At(topic, 1, 1)))
    await stage.ask(offsets(Of("", {topic: (1,)})))
    await stage.ask(deleted(""), "admin")  # other scripts find no group without a name


@script()
async def commits_of_members(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 2)
    group = stage.group()
    joined = await admitted(stage, group)
    member, generation = joined.member_id, joined.generation_id
    one = At(topic, 0, 5)
    for version in (2, 8, 9):
        await stage.ask(commit(group, generation, member, one, version=version))
        await stage.ask(commit(group, generation + 1, member, one, version=version))
        await stage.ask(commit(group, -1, "", one, version=version))
    await synced(stage, group, joined)
    for version in (2, 8, 9):
        await stage.ask(commit(group, generation, member, one, version=version))
        await stage.ask(commit(group, generation - 1, member, one, version=version))
        await stage.ask(commit(group, generation + 1, member, one, version=version))
        await stage.ask(commit(group, -1, member, one, version=version))
        await stage.ask(commit(group, -1, "", one, version=version))
        await stage.ask(commit(group, generation, "", one, version=version))
        await stage.ask(commit(group, generation, "nobody", one, version=version))
    await stage.ask(commit(group, generation, member, one, instance="i"))
    _, parked = await knocking(stage, group, joined)
    await stage.ask(commit(group, generation, member, At(topic, 0, 6)))
    await stage.ask(leave(group, member))
    await stage.answer(parked)
    await stage.ask(commit(group, generation, member, At(topic, 0, 7)))
    await stage.ask(offsets(Of(group, {topic: (0, 1)})))


@script()
async def commits_into_an_emptied_group(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 1)
    group = stage.group()
    joined = await alone(stage, group)
    member, generation = joined.member_id, joined.generation_id
    await stage.ask(commit(group, generation, member, At(topic, 0, 1)))
    await stage.ask(leave(group, member))
    await stage.ask(commit(group, generation, member, At(topic, 0, 2)))
    await stage.ask(commit(group, generation, "", At(topic, 0, 3)))
    await stage.ask(commit(group, -1, "nobody", At(topic, 0, 4)))
    await stage.ask(commit(group, -1, "", At(topic, 0, 5)))
    await stage.ask(offsets(Of(group)))
    await stage.ask(listed())


@script()
async def metadata_of_commits(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 8)
    group = stage.group()
    texts = ["", "x" * 4096, "x" * 4097, "é" * 4096, "é" * 4097, EMOJI * 2048, EMOJI * 2049]
    many = [At(topic, number, number, text) for number, text in enumerate(texts)]
    await stage.ask(commit(group, -1, "", *many, At(topic, 7, 7, None)))
    await stage.ask(offsets(Of(group, {topic: range(8)})))
    await stage.ask(commit(group, -1, "", At(topic, 7, 7, None), version=2))
    await stage.ask(offsets(Of(group, {topic: (7,)}), version=1))
    await stage.ask(commit(group, -1, "", At(topic_id, 0, 9, EMOJI * 2049), version=10))


@script()
async def commits_to_what_is_not_there(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 2)
    group = stage.group()
    joined = await alone(stage, group)
    member, generation = joined.member_id, joined.generation_id
    mixed = (At("no-such-topic", 0, 1), At(topic, 0, 1), At(topic, 2, 1), At(topic, -1, 1))
    await stage.ask(commit(group, generation, member, *mixed, version=8))
    await stage.ask(commit(group, generation + 1, member, *mixed))
    await stage.ask(commit(group, generation, member, At(topic, 1, -5, "m", 9)))
    await stage.ask(commit(group, generation, member, At(topic, 1, -1)))
    await stage.ask(commit(group, generation, member, At("", 0, 1)))
    await stage.ask(commit(group, generation, member, At(topic, 0, 2), At(topic, 0, 3)))
    await stage.ask(commit(group, generation, member))
    await stage.ask(commit(group, generation + 1, member))
    await stage.ask(commit(stage.group("unknown"), 1, "nobody", At("no-such-topic", 0, 1)))
    await stage.ask(offsets(Of(group)))


@script()
async def commits_by_topic_id(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 2)
    group = stage.group()
    many = (At(topic_id, 0, 1, "m", 4), At(topic_id, 5, 1), At(SOME_ID, 0, 1), At(bytes(16), 0, 1))
    await stage.ask(commit(group, -1, "", *many, version=10))
    await stage.ask(offsets(Of(group), version=9))
    await stage.ask(offsets(Of(group), version=10))
    asked = {topic_id: (0, 1, 7), SOME_ID: (0,), bytes(16): (0,)}
    await stage.ask(offsets(Of(group, asked), version=10))
    await stage.ask(offsets(Of(stage.group("unknown"), asked), version=10))
    await stage.ask(offsets(Of(stage.group("unknown")), version=10))
    joined = await alone(stage, group)
    member, generation = joined.member_id, joined.generation_id
    await stage.ask(commit(group, generation, member, At(topic_id, 1, 8), version=10))
    await stage.ask(commit(group, generation + 1, member, At(topic_id, 1, 9), version=10))
    await stage.ask(commit(group, generation, "nobody", At(topic_id, 1, 9), version=10))
    await stage.ask(commit(stage.group("unknown"), 1, "nobody", At(topic_id, 1, 9), version=10))
    await stage.ask(offsets(Of(group, {topic: (0, 1)}), version=8))


@script()
async def offsets_in_every_version(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 3)
    group, unknown = stage.group(), stage.group("unknown")
    await stage.ask(commit(group, -1, "", At(topic, 0, 1, "one", 7), At(topic, 1, 2, None)))
    for version in range(1, 10):
        asked = {topic: (0, 1, 2, 9), "no-such-topic": (0,)}
        await stage.ask(offsets(Of(group, asked), version=version))
        await stage.ask(offsets(Of(group, {}), version=version))
        await stage.ask(offsets(Of(unknown, asked), version=version))
        await stage.ask(offsets(Of("", {topic: (0,)}), version=version))
        if version > 1:
            await stage.ask(offsets(Of(group), version=version))
            await stage.ask(offsets(Of(unknown), version=version, stable=True))


@script()
async def offsets_of_several_groups(stage: Stage) -> None:
    topic, topic_id = await stage.topic("t", 2)
    one, two = stage.group("one"), stage.group("two")
    await stage.ask(commit(one, -1, "", At(topic, 0, 1)))
    await stage.ask(commit(two, -1, "", At(topic, 0, 2), At(topic, 1, 3)))
    joined = await alone(stage, one)
    unknown = stage.group("unknown")
    for version in (8, 9):
        asked = (Of(one), Of(two, {topic: (1,)}), Of(unknown), Of(unknown, {topic: (0,)}))
        await stage.ask(offsets(*asked, version=version))
    await stage.ask(offsets(Of(one, {topic: (0, 1)}), Of(two), version=9, stable=True))
    await stage.ask(offsets(Of(one, {topic_id: (0, 1)}), Of(two), version=10))
    # Classic groups do not look at who asks.
    generation = joined.generation_id
    for member, epoch in ((joined.member_id, generation), ("nobody", 1), ("", 0), ("nobody", 99)):
        await stage.ask(offsets(Of(one, {topic: (0,)}, member, epoch), version=9))
        await stage.ask(offsets(Of(unknown, {topic: (0,)}, member, epoch), version=9))
        await stage.ask(offsets(Of(unknown, None, member, epoch), version=9))


@script()
async def offsets_are_deleted(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 2)
    other, _ = await stage.topic("u", 2)
    group = stage.group()
    await stage.ask(forget(group, {topic: (0,)}))
    await stage.ask(forget("", {topic: (0,)}))
    both = (At(topic, 0, 1), At(other, 0, 2), At(other, 1, 3))
    await stage.ask(commit(group, -1, "", *both))
    joined = await alone(stage, group, protocols=[("range", subscription(topic))])
    asked = {topic: (0, 1), other: (0, 9), "no-such-topic": (0,)}
    await stage.ask(forget(group, asked))
    await stage.ask(forget(group, {}))
    await stage.ask(offsets(Of(group)))
    await stage.ask(leave(group, joined.member_id))
    await stage.ask(forget(group, asked))
    await stage.ask(offsets(Of(group)))
    await stage.ask(forget(group, {other: (1,)}))
    await stage.ask(offsets(Of(group)))
    await stage.ask(described(group), "admin")


@script()
async def offsets_of_other_programs_are_not_deleted(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 1)
    group = stage.group()
    x = [("x", b"1")]
    given = await stage.ask(join(group, kind="connect", protocols=x))
    joined = await stage.ask(join(group, given.member_id, kind="connect", protocols=x))
    await stage.ask(forget(group, {topic: (0,)}))
    member, generation = joined.member_id, joined.generation_id
    await stage.ask(sync(group, generation, member, {member: b"1"}, kind="connect", name="x"))
    await stage.ask(commit(group, generation, member, At(topic, 0, 1)))
    await stage.ask(forget(group, {topic: (0,)}))
    await stage.ask(leave(group, member))
    await stage.ask(forget(group, {topic: (0,)}))
    # Metadata that no consumer wrote, under the name of consumers.
    odd = stage.group("odd")
    await alone(stage, odd, protocols=[("range", b"\x00")])
    await stage.ask(forget(odd, {topic: (0,)}))


@script()
async def offsets_of_a_deleted_group(stage: Stage) -> None:
    topic, _ = await stage.topic("t", 1)
    group = stage.group()
    await stage.ask(commit(group, -1, "", At(topic, 0, 1)))
    await stage.ask(deleted(group, stage.group("unknown"), group), "admin")
    await stage.ask(offsets(Of(group)))
    await stage.ask(described(group), "admin")
    joined = await alone(stage, group)
    await stage.ask(deleted(group, "", version=0), "admin")
    await stage.ask(deleted(group, version=1), "admin")
    await stage.ask(leave(group, joined.member_id))
    await stage.ask(deleted(group), "admin")
    await stage.ask(deleted(group), "admin")
    again = await admitted(stage, group)
    await stage.ask(commit(group, again.generation_id - 1, again.member_id, At(topic, 0, 1)))


@script()
async def offsets_of_a_deleted_topic(stage: Stage) -> None:
    topic, old_id = await stage.topic("t", 1)
    kept, _ = await stage.topic("u", 1)
    group = stage.group()
    await stage.ask(commit(group, -1, "", At(topic, 0, 41), At(kept, 0, 42)))
    request = DeleteTopicsRequest((DeleteTopicState(name=topic),), timeout_ms=10_000)
    await stage.unseen(Ask(request, DeleteTopicsResponse, 6))
    await stage.until(
        lambda: offsets(Of(group, {topic: (0,)})),
        lambda found: found.groups[0].topics[0].partitions[0].committed_offset == -1,
    )
    await stage.ask(offsets(Of(group)))
    await stage.ask(offsets(Of(group, {old_id: (0,)}), version=10))
    _, new_id = await stage.topic("t", 1)
    await stage.ask(offsets(Of(group, {topic: (0,)})))
    await stage.ask(offsets(Of(group, {new_id: (0,), old_id: (0,)}), version=10))
    await stage.ask(commit(group, -1, "", At(old_id, 0, 1), At(new_id, 0, 2), version=10))
    await stage.ask(offsets(Of(group)))
