import asyncio

import pytest
from tests.broker.classic_members import stable
from tests.broker.group_stage import LONE, FixedCluster, GroupStage, run
from tests.broker.offset_requests import (
    commit,
    commit_request,
    fetch,
    fetch_request,
    offset,
    offsets_of,
)

from lakelog.broker import loop_turn, offset_fetch
from lakelog.broker.call import NAMED_MAX, CloseConnection
from lakelog.broker.lookup import PARTITIONS_MAX
from lakelog.groups.events import CommitOffsets
from lakelog.groups.table import domain_index
from lakelog.model.failures import Unavailable
from lakelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from lakelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
)


async def committed() -> GroupStage:
    """A group with offsets of two topics."""
    stage = GroupStage()
    stage.topic("t", 4)
    stage.topic("a")
    await commit(stage, commit_request(offset(3, 7), offset(0, 5, "note")))
    await commit(stage, commit_request(offset(0, 9), topic="a"))
    return stage


def old_request(group_id: str, *partitions: int) -> OffsetFetchRequest:
    return OffsetFetchRequest(group_id=group_id, topics=(OffsetFetchRequestTopic("t", partitions),))


@pytest.mark.parametrize("version", range(1, 8))
def test_until_v7_one_group_is_asked_for(version: int) -> None:
    async def scenario() -> None:
        stage = await committed()
        answer = await stage.ask(old_request("g", 0, 1), OffsetFetchResponse, version)
        assert answer == OffsetFetchResponse(
            topics=(
                OffsetFetchResponseTopic(
                    "t",
                    (
                        OffsetFetchResponsePartition(0, 5, -1, "note", 0),
                        OffsetFetchResponsePartition(1, -1, -1, "", 0),
                    ),
                ),
            )
        )

    run(scenario())


@pytest.mark.parametrize("version", [8, 9])
def test_from_v8_on_several_groups_are_asked_for_even_one_twice(version: int) -> None:
    async def scenario() -> None:
        stage = await committed()
        topics = (OffsetFetchRequestTopics(name="t", partition_indexes=(0, 3, 1)),)
        request = OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup("g", topics=None),
                OffsetFetchRequestGroup("none", topics=None),
                OffsetFetchRequestGroup("g", topics=topics),
                OffsetFetchRequestGroup("none", topics=topics),
                OffsetFetchRequestGroup("g", topics=()),
            ),
            require_stable=True,
        )
        answer = await stage.ask(request, OffsetFetchResponse, version)
        assert [group.group_id for group in answer.groups] == ["g", "none", "g", "none", "g"]
        assert [offsets_of(group) for group in answer.groups] == [
            {("a", 0): (9, ""), ("t", 0): (5, "note"), ("t", 3): (7, "")},
            {},
            {("t", 0): (5, "note"), ("t", 3): (7, ""), ("t", 1): (-1, "")},
            {("t", 0): (-1, ""), ("t", 3): (-1, ""), ("t", 1): (-1, "")},
            {},
        ]

    run(scenario())


@pytest.mark.parametrize("version", range(2, 8))
def test_null_topics_are_all_in_the_old_shape_too(version: int) -> None:
    async def scenario() -> None:
        stage = await committed()
        request = OffsetFetchRequest(group_id="g", topics=None)
        answer = await stage.ask(request, OffsetFetchResponse, version)
        assert [topic.name for topic in answer.topics] == ["a", "t"]
        request = OffsetFetchRequest(group_id="none", topics=None)
        assert await stage.ask(request, OffsetFetchResponse, version) == OffsetFetchResponse()

    run(scenario())


def test_v10_fetches_by_id_and_an_unknown_id_is_100() -> None:
    async def scenario() -> None:
        stage = await committed()
        known = stage.topics.by_name["t"].id
        topics = (
            OffsetFetchRequestTopics(b"?" * 16, (0,)),
            OffsetFetchRequestTopics(known, (0, 1)),
        )
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup("g", topics=topics),))
        (group,) = (await stage.ask(request, OffsetFetchResponse, 10)).groups
        assert [(topic.topic_id, topic.partitions) for topic in group.topics] == [
            (b"?" * 16, (OffsetFetchResponsePartitions(0, -1, -1, "", 100),)),
            (
                known,
                (
                    OffsetFetchResponsePartitions(0, 5, -1, "note", 0),
                    OffsetFetchResponsePartitions(1, -1, -1, "", 0),
                ),
            ),
        ]
        every = await stage.ask(fetch_request(), OffsetFetchResponse, 10)
        ids = [topic.topic_id for topic in every.groups[0].topics]
        assert ids == [stage.topics.by_name["a"].id, known]

    run(scenario())


def test_unknown_names_and_partitions_have_no_commit_and_no_error() -> None:
    async def scenario() -> None:
        stage = await committed()
        found = await fetch(stage, fetch_request(t=(99, -1), nosuch=(0,)))
        assert set(found.values()) == {(-1, "")}
        assert len(found) == 3

    run(scenario())


def test_what_others_committed_before_we_were_asked_is_told() -> None:
    async def scenario() -> None:
        stage = await committed()
        topic = stage.topics.by_name["t"].id
        offsets = ((topic, 0, 50, -1, "elsewhere"),)
        stage.groups.foreign.append(CommitOffsets("g", "", None, -1, 9, 1, offsets))
        assert await fetch(stage, fetch_request(t=(0,))) == {("t", 0): (50, "elsewhere")}

    run(scenario())


def test_a_commit_on_the_way_is_told_to_who_asks_after_it() -> None:
    async def scenario() -> None:
        stage = await committed()
        stage.groups.is_held = True
        await stage.begin(commit_request(offset(0, 6)), 9)
        assert await fetch(stage, fetch_request(t=(0,))) == {("t", 0): (6, "")}

    run(scenario())


def test_a_topic_that_was_made_anew_elsewhere_has_nothing_committed() -> None:
    async def scenario() -> None:
        stage = await committed()
        old = stage.topics.by_name["t"]
        stage.topics.unseen["t"] = stage.topic("t", 4, made=2)
        stage.topics.by_name["t"] = old
        assert await fetch(stage, fetch_request(t=(0,))) == {("t", 0): (-1, "")}

    run(scenario())


@pytest.mark.parametrize("is_store_of_topics", [True, False])
def test_without_proofs_the_answer_is_16_where_each_version_has_room_for_it(
    is_store_of_topics: bool,
) -> None:
    async def scenario() -> None:
        stage = await committed()
        if is_store_of_topics:
            stage.topics.failure = Unavailable("no answer")
        else:
            stage.groups.stale_domains = {0}
        oldest = await stage.ask(old_request("g", 0, 1), OffsetFetchResponse, 1)
        assert [(row.error_code, row.committed_offset) for row in oldest.topics[0].partitions] == [
            (16, -1),
            (16, -1),
        ]
        for version in range(2, 8):
            old = await stage.ask(old_request("g", 0), OffsetFetchResponse, version)
            assert (old.error_code, old.topics) == (16, ())
        for version in (8, 9, 10):
            (new,) = (await stage.ask(fetch_request(), OffsetFetchResponse, version)).groups
            assert (new.group_id, new.error_code, new.topics) == ("g", 16, ())

    run(scenario())


def test_a_domain_that_cannot_be_proved_takes_no_other_groups_down() -> None:
    async def scenario() -> None:
        stage = GroupStage(cluster=FixedCluster(LONE, domains=4))
        stage.topic("t")
        names = [f"group-{number}" for number in range(20)]
        for name in names:
            await commit(stage, commit_request(offset(0, 3), group_id=name))
        stage.groups.stale_domains = {2}
        request = OffsetFetchRequest(
            groups=tuple(OffsetFetchRequestGroup(name, topics=None) for name in names)
        )
        answer = await stage.ask(request, OffsetFetchResponse, 9)
        codes = {group.group_id: group.error_code for group in answer.groups}
        assert codes == {name: 16 if domain_index(name, 4) == 2 else 0 for name in names}
        assert set(codes.values()) == {0, 16}
        assert len(stage.groups.proofs) == 4

    run(scenario())


def test_members_of_consumer_groups_must_be_up_to_date() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        stage.topic("t")
        beat = ConsumerGroupHeartbeatRequest(
            "k", "m", 0, rebalance_timeout_ms=30_000, subscribed_topic_names=("t",)
        )
        joined = await stage.ask(beat, ConsumerGroupHeartbeatResponse, 1)
        epoch = joined.member_epoch

        async def code(member_id: str | None, at: int, version: int = 9) -> int:
            request = fetch_request("k", member_id=member_id, epoch=at, t=(0,))
            answer = await stage.ask(request, OffsetFetchResponse, version)
            return answer.groups[0].error_code

        assert await code("m", epoch) == 0
        assert await code("m", epoch + 1) == 113
        assert await code("zz", epoch) == 25
        assert await code("", -1) == 25
        assert await code(None, -1) == 0
        assert await code("m", epoch + 1, version=8) == 0  # which has no member

    run(scenario())


def test_members_of_classic_groups_are_not_judged() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        stage.topic("t")
        await stable(stage)
        request = fetch_request(member_id="zz", epoch=77, t=(0,))
        assert await fetch(stage, request) == {("t", 0): (-1, "")}

    run(scenario())


def test_a_request_of_too_much_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = asyncio.run(committed())
    named = fetch_request(t=(0,) * (PARTITIONS_MAX + 1))
    groups = (OffsetFetchRequestGroup("g", topics=None),)
    with pytest.raises(CloseConnection):
        run(stage.begin(named, 9))
    with pytest.raises(CloseConnection):
        run(stage.begin(OffsetFetchRequest(groups=groups * (NAMED_MAX + 1)), 9))
    monkeypatch.setattr(offset_fetch, "ANSWERED_MAX", 30)
    monkeypatch.setattr(loop_turn, "ITEMS_PER_LOOK", 7)
    answer = run(stage.ask(OffsetFetchRequest(groups=groups * 10), OffsetFetchResponse, 9))
    assert len(answer.groups) == 10
    with pytest.raises(CloseConnection):
        run(stage.begin(OffsetFetchRequest(groups=groups * 11), 9))
