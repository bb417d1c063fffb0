import asyncio

import pytest
from tests.broker.data_requests import accepted
from tests.broker.data_stage import DataStage, MemoryLog, batch

from lakelog.broker.list_offsets import KNOWN_SINCE, LOOKUPS_AT_ONCE, handle, is_supported
from lakelog.log.timestamps import TimestampMatch
from lakelog.model.failures import Corrupt, Unavailable
from lakelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

Row = tuple[int, int, int, int, int]
FIRST_MS = 1_794_717_942_000


def request(
    *wants: tuple[str, int, int], epoch: int = -1, timeout_ms: int = 0
) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        topics=tuple(
            ListOffsetsTopic(name, (ListOffsetsPartition(partition, epoch, timestamp),))
            for name, partition, timestamp in wants
        ),
        timeout_ms=timeout_ms,
    )


def ask(
    stage: DataStage, asked: ListOffsetsRequest, version: int = 11
) -> list[ListOffsetsPartitionResponse]:
    response = asyncio.run(handle(stage.broker, stage.call(version), asked))
    return [row for topic in response.topics for row in topic.partitions]


def one(stage: DataStage, timestamp: int, version: int = 11) -> tuple[int, int, int, int]:
    (row,) = ask(stage, request(("t", 0, timestamp)), version)
    return row.error_code, row.timestamp, row.offset, row.leader_epoch


def filled(log: MemoryLog | None = None) -> DataStage:
    """Offsets 2 to 4 of five records, whose timestamps rise by one; the last batch is older."""
    stage = DataStage(log=log or MemoryLog())
    stage.topic("t")
    stage.log._commit([1], [accepted(batch(b"a", b"b", b"c"))])
    stage.log._commit([1], [accepted(batch(b"d", b"e", timestamp_ms=FIRST_MS - 100))])
    asyncio.run(stage.log.trim({1: 2}))
    return stage


def test_special_timestamps_mean_what_row_57_says() -> None:
    stage = filled()
    assert one(stage, -1) == (0, -1, 5, 0)
    assert one(stage, -2) == (0, -1, 2, 0)
    assert one(stage, -3) == (0, FIRST_MS + 2, 2, 0)
    assert one(stage, -4) == (0, -1, 2, 0)
    assert one(stage, -5) == (0, -1, -1, -1)
    assert one(stage, -6) == (0, -1, -1, -1)


def test_a_time_finds_the_first_record_that_is_not_older() -> None:
    stage = filled()
    assert one(stage, 0) == (0, FIRST_MS + 2, 2, 0)
    assert one(stage, FIRST_MS + 2) == (0, FIRST_MS + 2, 2, 0)
    assert one(stage, FIRST_MS + 3) == (0, -1, -1, -1)
    assert one(stage, 2**63 - 1) == (0, -1, -1, -1)


def test_an_empty_log_has_an_end_and_a_start_but_no_greatest_timestamp() -> None:
    stage = DataStage()
    stage.topic("t")
    assert one(stage, -1) == (0, -1, 0, 0)
    assert one(stage, -2) == (0, -1, 0, 0)
    assert one(stage, -3) == (0, -1, -1, -1)
    assert one(stage, 5) == (0, -1, -1, -1)


@pytest.mark.parametrize("version", range(1, 12))
def test_specials_below_their_version_and_other_negatives_are_35(version: int) -> None:
    stage = filled()
    for timestamp in range(-9, 0):
        known = timestamp in KNOWN_SINCE and version >= KNOWN_SINCE[timestamp]
        assert is_supported(timestamp, version=version) == known
        assert (one(stage, timestamp, version)[0] == 35) == (not known)


def test_a_partition_named_twice_is_answered_once_with_42() -> None:
    stage = filled()
    twice = ListOffsetsPartition(0, -1, -1)
    asked = ListOffsetsRequest(topics=(ListOffsetsTopic("t", (twice, twice)),))
    assert ask(stage, asked) == [ListOffsetsPartitionResponse(0, 42)]
    asked = request(("t", 0, -1), ("t", 0, -2))
    assert ask(stage, asked) == [ListOffsetsPartitionResponse(0, 42)]


def test_unknown_topics_and_partitions_are_3_beside_good_ones() -> None:
    stage = filled()
    made = ask(stage, request(("t", 0, -1), ("t", 4, -1), ("none", 0, -1)))
    assert [row.error_code for row in made] == [0, 3, 3]


def test_leader_epochs_are_checked() -> None:
    stage = filled()
    for epoch, code in ((-1, 0), (0, 0), (5, 75), (-3, 74)):
        assert ask(stage, request(("t", 0, -1), epoch=epoch))[0].error_code == code


def test_the_end_holds_what_other_brokers_acknowledged() -> None:
    stage = filled()
    stage.log.foreign.append((1, accepted(batch(b"x"))))
    assert one(stage, -1) == (0, -1, 6, 0)
    assert stage.log.proofs == 1


def test_without_a_proof_no_offset_is_given() -> None:
    stage = filled()
    stage.log.provable = False
    made = ask(stage, request(("t", 0, -1), ("t", 9, -1), ("t", 1, -9)))
    assert [row.error_code for row in made] == [6, 3, 35]
    assert made[0].offset == -1


class TroubledLog(MemoryLog):
    """Searches fail, or never end."""

    async def find_timestamp(self, stream: int, timestamp_ms: int) -> TimestampMatch | None:
        if timestamp_ms == 1:
            raise Unavailable("down")
        if timestamp_ms == 2:
            raise Corrupt("rot")
        await asyncio.Event().wait()
        return None


def test_a_search_that_fails_or_takes_too_long_is_its_own_partitions_error() -> None:
    stage = filled(TroubledLog())
    stage.topic("u", 2)
    made = ask(stage, request(("t", 0, 1), ("u", 0, 2), ("u", 1, -1)))
    assert [row.error_code for row in made] == [6, 56, 0]
    assert ask(stage, request(("t", 0, 3), timeout_ms=1))[0].error_code == 7


def test_a_topic_dropped_meanwhile_is_3() -> None:
    stage = filled()
    stage.log.drop(1)
    assert one(stage, -1) == (3, -1, -1, -1)


class CountingLog(MemoryLog):
    """Counts the searches that run at once."""

    running = most = 0

    async def find_timestamp(self, stream: int, timestamp_ms: int) -> TimestampMatch | None:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return TimestampMatch(stream, timestamp_ms)


def test_searches_of_one_request_run_together_up_to_a_limit() -> None:
    log = CountingLog()
    stage = DataStage(log=log)
    stage.topic("t", 40)
    partitions = tuple(ListOffsetsPartition(number, -1, 7) for number in range(40))
    made = ask(stage, ListOffsetsRequest(topics=(ListOffsetsTopic("t", partitions),)))
    assert [row.offset for row in made] == list(range(1, 41))
    assert log.most == LOOKUPS_AT_ONCE
