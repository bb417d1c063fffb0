import asyncio

from tests.broker.data_requests import accepted
from tests.broker.data_stage import DataStage, idempotent

from lakelog.broker.describe_producers import handle
from lakelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    PartitionResponse,
    ProducerState,
)


def ask(stage: DataStage, name: str, *partitions: int) -> tuple[PartitionResponse, ...]:
    request = DescribeProducersRequest((DescribeProducersTopicRequest(name, partitions),))
    (topic,) = asyncio.run(handle(stage.broker, stage.call(0), request)).topics
    assert topic.name == name
    return topic.partitions


def test_the_producers_of_a_partition_are_listed_with_their_last_batch() -> None:
    stage = DataStage()
    stage.topic("t", 2)
    for data in (idempotent(7, 1, 0, b"a", b"b"), idempotent(7, 1, 2, b"c"), idempotent(9, 0, 0)):
        stage.log._commit([1], [accepted(data)])
    first, second, third = ask(stage, "t", 0, 1, 4)
    assert first.active_producers == (
        ProducerState(7, 1, 2, 1_794_717_942_000, -1, -1),
        ProducerState(9, 0, 0, 1_794_717_942_000, -1, -1),
    )
    assert second == PartitionResponse(1)
    assert third == PartitionResponse(4, 3)


def test_unknown_topics_are_3_and_impossible_names_17() -> None:
    stage = DataStage()
    assert [row.error_code for row in ask(stage, "none", 0, 1)] == [3, 3]
    (row,) = ask(stage, "bad name!", 0)
    assert row.error_code == 17
    assert row.error_message
