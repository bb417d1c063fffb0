import asyncio

from tests.broker.data_requests import accepted
from tests.broker.data_stage import DataStage, batch

from lakelog.broker.offset_for_leader_epoch import handle
from lakelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def ask(stage: DataStage, *wants: tuple[str, int, int, int]) -> list[tuple[int, int, int]]:
    request = OffsetForLeaderEpochRequest(
        topics=tuple(
            OffsetForLeaderTopic(name, (OffsetForLeaderPartition(partition, current, epoch),))
            for name, partition, current, epoch in wants
        )
    )
    response = asyncio.run(handle(stage.broker, stage.call(4), request))
    return [
        (row.error_code, row.leader_epoch, row.end_offset)
        for topic in response.topics
        for row in topic.partitions
    ]


def filled() -> DataStage:
    stage = DataStage()
    stage.topic("t")
    stage.log._commit([1], [accepted(batch(b"a", b"b"))])
    return stage


def test_the_one_epoch_ends_at_the_log_end() -> None:
    assert ask(filled(), ("t", 0, -1, 0), ("t", 0, 0, 0)) == [(0, 0, 2), (0, 0, 2)]


def test_the_end_is_never_below_what_was_acknowledged_anywhere() -> None:
    stage = filled()
    stage.log.foreign.append((1, accepted(batch(b"c"))))
    assert ask(stage, ("t", 0, -1, 0)) == [(0, 0, 3)]


def test_epochs_above_ours_and_negative_ones_have_no_end_and_no_error() -> None:
    wants = [("t", 0, -1, epoch) for epoch in (1, 5, -1, -2)]
    assert ask(filled(), *wants) == [(0, -1, -1)] * 4


def test_the_current_epoch_a_client_believes_in_is_checked() -> None:
    assert ask(filled(), ("t", 0, 1, 0), ("t", 0, -2, 0)) == [(75, -1, -1), (74, -1, -1)]


def test_unknown_topics_and_partitions_are_3() -> None:
    stage = filled()
    assert ask(stage, ("none", 0, -1, 0), ("t", 7, -1, 0)) == [(3, -1, -1)] * 2
    stage.log.drop(1)
    assert ask(stage, ("t", 0, -1, 0)) == [(3, -1, -1)]


def test_without_a_proof_no_end_is_given() -> None:
    stage = filled()
    stage.log.provable = False
    assert ask(stage, ("t", 0, -1, 0), ("t", 7, -1, 0)) == [(6, -1, -1), (3, -1, -1)]
