import asyncio
from collections.abc import Mapping

from tests.broker.data_requests import accepted
from tests.broker.data_stage import DataStage, MemoryLog, SetClock, batch

from lakelog.broker.delete_records import handle
from lakelog.model.failures import OutcomeUnknown
from lakelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)


def ask(stage: DataStage, *wants: tuple[str, int, int]) -> list[tuple[int, int]]:
    request = DeleteRecordsRequest(
        topics=tuple(
            DeleteRecordsTopic(name, (DeleteRecordsPartition(partition, offset),))
            for name, partition, offset in wants
        ),
        timeout_ms=1_000,
    )
    response = asyncio.run(handle(stage.broker, stage.call(2), request))
    assert [topic.name for topic in response.topics] == [name for name, _, _ in wants]
    return [
        (row.error_code, row.low_watermark) for topic in response.topics for row in topic.partitions
    ]


def filled(policy: str = "delete", log: MemoryLog | None = None) -> DataStage:
    stage = DataStage(log=log or MemoryLog())
    stage.topic("t", configs={"cleanup.policy": policy})
    for value in (b"a", b"b", b"c", b"d"):
        stage.log._commit([1], [accepted(batch(value))])
    return stage


def test_the_log_start_moves_forward_to_the_offset_or_to_the_end() -> None:
    stage = filled()
    assert ask(stage, ("t", 0, 2)) == [(0, 2)]
    assert ask(stage, ("t", 0, 1)) == [(0, 2)]
    assert ask(stage, ("t", 0, 2)) == [(0, 2)]
    assert ask(stage, ("t", 0, -1)) == [(0, 4)]
    assert ask(stage, ("t", 0, 0)) == [(0, 4)]


def test_offsets_beyond_the_end_or_below_minus_1_are_1() -> None:
    stage = filled()
    assert ask(stage, ("t", 0, 5)) == [(1, -1)]
    assert ask(stage, ("t", 0, -2)) == [(1, -1)]
    facts = stage.log.facts(1)
    assert facts is not None
    assert facts.log_start == 0


def test_the_end_is_the_end_of_what_was_acknowledged_anywhere() -> None:
    stage = filled()
    stage.log.foreign.append((1, accepted(batch(b"e"))))
    assert ask(stage, ("t", 0, -1)) == [(0, 5)]


def test_unknown_partitions_are_3_and_the_others_are_trimmed() -> None:
    stage = filled()
    assert ask(stage, ("none", 0, 1), ("t", 3, 1), ("t", 0, 1)) == [(3, -1), (3, -1), (0, 1)]


def test_a_compacted_topic_refuses_unless_it_also_deletes() -> None:
    assert ask(filled("compact"), ("t", 0, 1)) == [(44, -1)]
    assert ask(filled("compact,delete"), ("t", 0, 1)) == [(0, 1)]


class TroubledLog(MemoryLog):
    """Trims have an unknown outcome, or never end."""

    ends = True

    async def trim(self, offsets: Mapping[int, int]) -> dict[int, int]:
        if not self.ends:
            await asyncio.Event().wait()
        raise OutcomeUnknown("?")


def test_an_unknown_outcome_is_7_and_the_others_have_theirs() -> None:
    stage = filled(log=TroubledLog())
    stage.topic("u", 2)
    assert ask(stage, ("t", 0, 1), ("u", 0, 9), ("u", 1, 0)) == [(7, -1), (1, -1), (0, 0)]


def test_a_trim_that_takes_too_long_is_7() -> None:
    log = TroubledLog()
    log.ends = False
    stage = filled(log=log)
    stage.clock = BusyClock()
    assert ask(stage, ("t", 0, 1)) == [(7, -1)]


class BusyClock(SetClock):
    """Time is over at the second look."""

    def monotonic_s(self) -> float:
        self.monotonic += 10
        return self.monotonic


def test_without_a_proof_nothing_is_trimmed() -> None:
    stage = filled()
    stage.log.provable = False
    assert ask(stage, ("t", 0, 1)) == [(7, -1)]
    facts = stage.log.facts(1)
    assert facts is not None
    assert facts.log_start == 0


def test_a_stream_dropped_meanwhile_is_3() -> None:
    stage = filled()
    stage.log.drop(1)
    assert ask(stage, ("t", 0, 1)) == [(3, -1)]
