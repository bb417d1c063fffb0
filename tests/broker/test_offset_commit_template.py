"""Commits that repeat: the same answers, events and refusals as on the ordinary way."""

import random

import pytest
from msgspec.structs import replace
from tests.broker.group_stage import GroupStage, run, settled, told
from tests.broker.offset_requests import commit_request, offset

from lakelog.broker.api import dispatch
from lakelog.broker.call import Call, CloseConnection, EncodedAnswer
from lakelog.broker.offset_commit_template import CONNECTIONS_MAX, CommitTemplateTable
from lakelog.groups.events import CommitOffsets
from lakelog.server.answers import encoded
from lakelog.wire.apis import ApiKey
from lakelog.wire.codec import encode
from lakelog.wire.framing import RequestHeader
from lakelog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from lakelog.wire.schema import ProtocolError

VERSIONS = range(2, 11)


def staged(partitions: int = 3) -> GroupStage:
    stage = GroupStage()
    for name in ("t", "u"):
        stage.topic(name, partitions)
    return stage


def with_id(stage: GroupStage, request: OffsetCommitRequest) -> OffsetCommitRequest:
    """The request as a client of v10 sends it."""
    topics = tuple(
        replace(topic, topic_id=stage.topics.by_name[topic.name].id) for topic in request.topics
    )
    return replace(request, topics=topics)


async def answer_bytes(stage: GroupStage, body: bytes, call: Call) -> bytes:
    """What leaves for a client that sent this body."""
    outcome = await dispatch(stage.broker, ApiKey.OFFSET_COMMIT, call, memoryview(body))
    header = RequestHeader(ApiKey.OFFSET_COMMIT, call.version, 7, call.client_id, 0)
    return b"".join(encoded(header, await settled(outcome)))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_third_of_its_kind_is_not_decoded_and_is_kept_and_answered(version: int) -> None:
    async def scenario() -> None:
        stage = staged()
        for number in range(4):
            request = commit_request(offset(number % 3, 10 + number, "note", epoch=5))
            outcome = await settled(await stage.begin(with_id(stage, request), version))
            assert isinstance(outcome, EncodedAnswer) == (number >= 2)
            answer = told(outcome, OffsetCommitResponse, version)
            assert [topic.partitions[0].partition_index for topic in answer.topics] == [number % 3]
            event = stage.groups.taken[-1]
            assert isinstance(event, CommitOffsets)
            epoch = 5 if version >= 6 else -1
            assert event.api_version == version
            assert event.offsets == (
                (stage.topics.by_name["t"].id, number % 3, 10 + number, epoch, "note"),
            )

    run(scenario())


def random_habit(chance: random.Random, stage: GroupStage) -> tuple[int, OffsetCommitRequest]:
    """What one client commits for a while: its version, and all but partition and offset."""
    asked = offset(0, 0, chance.choice(("", "note", None)), epoch=chance.choice((-1, 4)))
    request = commit_request(
        *((asked,) if chance.random() < 0.9 else (asked, offset(1, 5))),
        topic=chance.choice(("t", "t", "u")),
        member_id=chance.choice(("", "", "nobody")),
        generation=chance.choice((-1, -1, 3)),
    )
    return chance.choice(VERSIONS), with_id(stage, request)


def random_body(chance: random.Random, habit: tuple[int, OffsetCommitRequest]) -> bytes:
    """One such commit, now and then with a bit that is another."""
    version, request = habit
    (topic,) = request.topics
    moved = replace(
        topic.partitions[0],
        partition_index=chance.choice((0, 0, 1, 2, 3, -1, 1 << 30)),
        committed_offset=chance.choice((0, 1, -1, (1 << 63) - 1, -(1 << 63))),
    )
    topic = replace(topic, partitions=(moved, *topic.partitions[1:]))
    body = bytearray(b"".join(encode(replace(request, topics=(topic,)), version)))
    if chance.random() < 0.1:
        body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
    return bytes(body)


@pytest.mark.parametrize("seed", range(8))
def test_both_ways_answer_and_keep_the_same(seed: int) -> None:
    async def scenario() -> None:
        chance = random.Random(seed)
        prepared, ordinary = staged(), staged()
        habits = [random_habit(chance, prepared) for _ in range(2)]
        taken_quickly = 0
        for _ in range(400):
            connection = chance.randrange(2)
            if chance.random() < 0.1:
                habits[connection] = random_habit(chance, prepared)
            # A version that is another says other things with the same bytes.
            version = habits[connection][0] if chance.random() < 0.9 else chance.choice(VERSIONS)
            body = random_body(chance, habits[connection])
            if chance.random() < 0.01:
                partitions, made = chance.choice((1, 3)), chance.choice((1, 2))
                for stage in (prepared, ordinary):
                    stage.topic("t", partitions, made=made)
            ordinary.offset_commit_templates = CommitTemplateTable()
            found = []
            for stage in (prepared, ordinary):
                call = replace(stage.call(version, len(body)), connection=connection)
                try:
                    found.append(await answer_bytes(stage, body, call))
                except (ProtocolError, CloseConnection) as reason:
                    found.append(repr(reason).encode())
            assert found[0] == found[1], (version, body.hex())
            known = prepared.offset_commit_templates.template_for(connection)
            taken_quickly += known is not None and known.find(memoryview(body), version) is not None
        assert prepared.groups.taken == ordinary.groups.taken
        assert taken_quickly > 20

    run(scenario())


def test_a_topic_that_is_gone_or_made_anew_is_looked_up_each_time() -> None:
    async def scenario() -> None:
        stage = staged()
        request = commit_request(offset(2, 1))
        for _ in range(3):
            answer = await stage.ask(request, OffsetCommitResponse, 9)
            assert answer.topics[0].partitions[0].error_code == 0
        anew = stage.topic("t", 3, made=2)
        await stage.ask(request, OffsetCommitResponse, 9)
        event = stage.groups.taken[-1]
        assert isinstance(event, CommitOffsets)
        assert event.offsets[0][0] == anew.id
        stage.topic("t", 1, made=3)
        answer = await stage.ask(request, OffsetCommitResponse, 9)
        assert answer.topics[0].partitions[0].error_code == 3
        del stage.topics.by_name["t"]
        answer = await stage.ask(request, OffsetCommitResponse, 9)
        assert answer.topics[0].partitions[0].error_code == 3

    run(scenario())


def test_topics_in_turn_make_no_template() -> None:
    async def scenario() -> None:
        stage = staged()
        for number in range(10):
            request = commit_request(offset(0, number), topic="tu"[number % 2])
            await stage.ask(request, OffsetCommitResponse, 9)
            assert stage.offset_commit_templates.template_for(1) is None

    run(scenario())


def test_only_so_many_connections_are_remembered_and_no_large_request() -> None:
    async def scenario() -> None:
        stage, commits = staged(), CommitTemplateTable()
        request = commit_request(offset(0, 1))
        for connection in range(CONNECTIONS_MAX + 5):
            call = replace(stage.call(9), connection=connection)
            commits.see(call, request)
            commits.see(call, request)
        assert len(commits) == CONNECTIONS_MAX
        assert commits.template_for(4) is None
        assert commits.template_for(5) is not None
        large = CommitTemplateTable()
        large.see(stage.call(9, request_bytes=2_000), request)
        assert len(large) == 0

    run(scenario())
