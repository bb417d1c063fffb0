import asyncio

import pytest
from tests.broker.data_stage import DataStage, KnownTopics, topic_id

from lakelog.broker import lookup
from lakelog.broker.call import CloseConnection
from lakelog.broker.errors import Attempt
from lakelog.broker.lookup import TopicFinder, check_count, epoch_code
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Unavailable
from lakelog.topics.topic import Topic

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def find(stage: DataStage, *wanted: str | bytes) -> list[Topic | ErrorCode]:
    async def ask() -> list[Topic | ErrorCode]:
        finder = TopicFinder(stage.broker, Attempt.READING)
        return [await finder.find(one, [0]) for one in wanted]

    return asyncio.run(ask())


def test_a_known_topic_is_found_by_name_and_by_id_without_asking_the_store() -> None:
    stage = DataStage()
    made = stage.topic("t")
    assert find(stage, "t", topic_id("t")) == [made, made]
    assert stage.topics.asked == 0


def test_all_unknown_topics_of_a_request_cost_one_look_at_the_store() -> None:
    stage = DataStage()
    made = stage.topic("new")
    stage.topics.unseen, stage.topics.by_name = stage.topics.by_name, {}
    found = find(stage, "a", "b", "new", topic_id("x"), *(f"n{number}" for number in range(1_000)))
    assert found[:4] == [UNKNOWN, UNKNOWN, made, ErrorCode.UNKNOWN_TOPIC_ID]
    assert stage.topics.asked == 1


def test_a_name_that_nobody_can_have_is_unknown_without_a_look() -> None:
    stage = DataStage()
    assert find(stage, "bad name!", "", "..", "x" * 250) == [UNKNOWN] * 4
    assert stage.topics.asked == 0


def test_while_the_store_is_down_unknown_topics_are_retriable_and_known_ones_found() -> None:
    stage = DataStage()
    made = stage.topic("t")
    stage.topics.failure = Unavailable("down")
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert find(stage, "a", "t", "b") == [code, made, code]
    assert stage.topics.asked == 1


class SilentTopics(KnownTopics):
    """The store never answers."""

    async def current(self) -> None:
        await asyncio.Event().wait()


def test_a_look_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "LOOK_S_MAX", 0.01)
    stage = DataStage(topics=SilentTopics())
    assert find(stage, "a") == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_request_of_too_many_partitions_ends_its_connection() -> None:
    check_count([range(10_000), range(15_000)])
    with pytest.raises(CloseConnection):
        check_count([range(10_000), range(15_001)])


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 0), (1, 75), (2**31 - 1, 75), (-2, 74)])
def test_epochs_are_judged_against_the_one_there_is(epoch: int, code: int) -> None:
    assert epoch_code(epoch) == code
