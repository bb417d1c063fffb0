import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.classic_members import joined, stable
from tests.broker.group_stage import GroupStage, run, settled, told
from tests.broker.offset_requests import commit, commit_request, fetch, fetch_request, offset

from lakelog.broker.call import CloseConnection, Later
from lakelog.broker.lookup import PARTITIONS_MAX
from lakelog.groups.events import CommitOffsets, DeleteGroup
from lakelog.model.failures import Unavailable
from lakelog.wire.messages.delete_groups import DeleteGroupsRequest
from lakelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from lakelog.wire.messages.offset_fetch import OffsetFetchResponse


def staged(partitions: int = 2) -> GroupStage:
    stage = GroupStage()
    stage.topic("t", partitions)
    return stage


@pytest.mark.parametrize("version", range(2, 10))
def test_what_is_committed_is_fetched_with_its_metadata(version: int) -> None:
    async def scenario() -> None:
        stage = staged()
        request = commit_request(offset(0, 5, "note"), offset(1, -7, None))
        assert await commit(stage, request, version) == [0, 0]
        assert await fetch(stage, fetch_request()) == {("t", 0): (5, "note"), ("t", 1): (-7, "")}

    run(scenario())


def test_v10_commits_by_id_and_an_unknown_id_is_100() -> None:
    async def scenario() -> None:
        stage = staged()
        topic = stage.topic("t", 1)
        request = OffsetCommitRequest(
            "g",
            topics=(
                OffsetCommitRequestTopic(b"?" * 16, (offset(0, 1),)),
                OffsetCommitRequestTopic(bytes(16), (offset(0, 2),)),
                OffsetCommitRequestTopic(topic.id, (offset(0, 3), offset(1, 4))),
            ),
        )
        answer = await stage.ask(request, OffsetCommitResponse, 10)
        assert [one.topic_id for one in answer.topics] == [b"?" * 16, bytes(16), topic.id]
        codes = [[row.error_code for row in one.partitions] for one in answer.topics]
        assert codes == [[100], [100], [0, 3]]
        assert await fetch(stage, fetch_request()) == {("t", 0): (3, "")}

    run(scenario())


def test_unknown_topics_and_partitions_are_3_and_the_others_are_committed() -> None:
    async def scenario() -> None:
        stage = staged()
        request = OffsetCommitRequest(
            "g",
            topics=(
                OffsetCommitRequestTopic(name="none", partitions=(offset(0, 1),)),
                OffsetCommitRequestTopic(name="..", partitions=(offset(0, 1),)),
                OffsetCommitRequestTopic(name="t", partitions=(offset(2, 1), offset(1, 9))),
                OffsetCommitRequestTopic(name="t", partitions=(offset(-1, 1),)),
            ),
        )
        assert await commit(stage, request) == [3, 3, 3, 0, 3]
        assert await fetch(stage, fetch_request()) == {("t", 1): (9, "")}

    run(scenario())


def test_nothing_left_to_commit_asks_no_group() -> None:
    async def scenario() -> None:
        stage = staged()
        assert await commit(stage, commit_request(offset(9, 1), generation=5)) == [3]
        assert await commit(stage, OffsetCommitRequest("g", 5, "m")) == []
        assert stage.groups.taken == []

    run(scenario())


@given(st.integers(4_090, 4_100), st.sampled_from(["x", "é", "😀"]))
def test_metadata_is_measured_as_java_does(length: int, character: str) -> None:
    async def scenario() -> None:
        stage = staged()
        units = length * len(character.encode("utf-16-le")) // 2
        too_long = units > 4_096
        request = commit_request(offset(0, 1, character * length), offset(1, 2, "short"))
        assert await commit(stage, request) == [12 if too_long else 0, 0]
        kept = await fetch(stage, fetch_request())
        assert set(kept) == {("t", 1)} | (set() if too_long else {("t", 0)})

    run(scenario())


def test_a_leader_epoch_comes_back_as_it_was_committed() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        stage.topic("t", 4)
        epochs = {0: -1, 1: 0, 2: 2_147_483_647, 3: -9}
        request = commit_request(*(offset(at, 1, epoch=epoch) for at, epoch in epochs.items()))
        assert await commit(stage, request) == [0] * 4
        (event,) = stage.groups.taken
        assert isinstance(event, CommitOffsets)
        assert [kept[3] for kept in event.offsets] == list(epochs.values())
        answer = await stage.ask(fetch_request(t=(0, 1, 2, 3)), OffsetFetchResponse, 9)
        rows = answer.groups[0].topics[0].partitions
        assert [row.committed_leader_epoch for row in rows] == list(epochs.values())

    run(scenario())


def test_the_group_judges_once_for_all_that_is_left() -> None:
    async def scenario() -> None:
        stage = staged()
        member = await stable(stage)

        async def codes(member_id: str, generation: int, version: int = 9) -> list[int]:
            partitions = offset(0, 5), offset(9, 5), offset(1, 5, "x" * 4_097), offset(1, 6)
            request = commit_request(*partitions, member_id=member_id, generation=generation)
            return await commit(stage, request, version)

        assert await codes(member.member_id, member.generation) == [0, 3, 12, 0]
        assert await codes(member.member_id, member.generation + 1) == [22, 3, 12, 22]
        assert await codes("zz", member.generation) == [25, 3, 12, 25]
        assert await codes("", -1) == [25, 3, 12, 25]
        assert await fetch(stage, fetch_request()) == {("t", 0): (5, ""), ("t", 1): (6, "")}

    run(scenario())


def test_a_group_that_there_is_not_is_69_since_v9_and_22_before() -> None:
    async def scenario() -> None:
        stage = staged()
        request = commit_request(offset(0, 5), generation=5, member_id="m")
        assert await commit(stage, request, 8) == [22]
        assert await commit(stage, request, 9) == [69]
        assert await fetch(stage, fetch_request()) == {}

    run(scenario())


def test_a_commit_while_assignments_are_awaited_is_27() -> None:
    async def scenario() -> None:
        stage = staged()
        member = await joined(stage)
        request = commit_request(
            offset(0, 5), member_id=member.member_id, generation=member.generation
        )
        assert await commit(stage, request) == [27]

    run(scenario())


def test_commits_and_what_follows_them_reach_the_log_in_the_order_of_the_requests() -> None:
    async def scenario() -> None:
        stage = staged()
        stage.groups.is_held = True
        begun = [
            await stage.begin(commit_request(offset(0, 5)), 9),
            await stage.begin(DeleteGroupsRequest(("g",)), 2),
            await stage.begin(commit_request(offset(1, 6)), 9),
        ]
        assert all(isinstance(one, Later) for one in begun)
        kinds = [type(event) for event in stage.groups.taken]
        assert kinds == [CommitOffsets, DeleteGroup, CommitOffsets]
        stage.groups.apply_held()
        last = told(await settled(begun[2]), OffsetCommitResponse, 9)
        assert last.topics[0].partitions[0].error_code == 0
        assert await fetch(stage, fetch_request()) == {("t", 1): (6, "")}

    run(scenario())


def test_a_topic_made_again_has_no_offsets() -> None:
    async def scenario() -> None:
        stage = staged()
        await commit(stage, commit_request(offset(0, 5)))
        stage.topic("t", made=2)
        assert await fetch(stage, fetch_request()) == {}
        assert await fetch(stage, fetch_request(t=(0,))) == {("t", 0): (-1, "")}

    run(scenario())


def test_a_topic_that_only_the_store_knows_is_found_and_without_the_store_it_is_15() -> None:
    async def scenario() -> None:
        stage = staged()
        stage.topics.unseen["new"] = stage.topic("new")
        del stage.topics.by_name["new"]
        stage.topics.failure = Unavailable("no answer")
        request = OffsetCommitRequest(
            "g",
            topics=(
                OffsetCommitRequestTopic(name="new", partitions=(offset(0, 1),)),
                OffsetCommitRequestTopic(name="t", partitions=(offset(0, 2),)),
            ),
        )
        assert await commit(stage, request) == [15, 0]
        stage.topics.failure = None
        assert await commit(stage, request) == [0, 0]

    run(scenario())


def test_a_draining_broker_sends_committers_away() -> None:
    async def scenario() -> None:
        stage = staged()
        stage.groups.is_draining = True
        assert await commit(stage, commit_request(offset(0, 5))) == [16]

    run(scenario())


def test_a_request_of_too_many_partitions_closes_the_connection() -> None:
    with pytest.raises(CloseConnection):
        run(commit(staged(), commit_request(*(offset(0, 1),) * (PARTITIONS_MAX + 1))))


def test_the_most_partitions_of_one_request_fit_a_record_if_they_have_no_metadata() -> None:
    async def scenario() -> None:
        count = 20_000
        stage = staged(count)
        partitions = tuple(OffsetCommitRequestPartition(at, 1 << 40) for at in range(count))
        assert set(await commit(stage, commit_request(*partitions))) == {0}

    run(scenario())
