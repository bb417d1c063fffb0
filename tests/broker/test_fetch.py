from collections.abc import Sequence

import pytest
from tests.broker.data_requests import (
    accepted,
    codes,
    commit,
    fetch,
    fetched,
    one,
    record_bytes,
    rows,
    run,
    sizes,
)
from tests.broker.data_stage import DataStage, MemoryLog, batch, topic_id

from lakelog.broker import fetch_read
from lakelog.broker.fetch import (
    ANSWER_BYTES,
    RESPONSE_BYTES_MAX,
)
from lakelog.broker.fetch_sessions import records_bytes
from lakelog.log.values import Fetched, StreamRead
from lakelog.model.errors import RETRIABLE, ErrorCode
from lakelog.model.failures import Unavailable
from lakelog.records.header import parse_header, split_batches
from lakelog.wire.codec import encode
from lakelog.wire.messages.fetch import (
    FetchReplicaState,
    FetchRequest,
)


def test_every_offset_gives_the_whole_batch_it_lies_in_with_its_offset_and_epoch() -> None:
    stage = DataStage()
    stage.topic("t")
    commit(stage, 1, b"a", b"b", b"c")
    commit(stage, 1, b"d", b"e")
    for offset in range(5):
        row = one(fetched(stage, fetch(("t", [(0, offset)]))))
        headers = [parse_header(found) for found in split_batches(memoryview(record_bytes(row)))]
        assert headers[0].base_offset == (0 if offset < 3 else 3)
        assert headers[-1].base_offset + headers[-1].last_offset_delta == 4
        assert {header.partition_leader_epoch for header in headers} == {0}
        assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (5, 5, 0)


def test_the_end_is_empty_beyond_it_and_below_the_start_are_out_of_range() -> None:
    stage = DataStage()
    stage.topic("t")
    commit(stage, 1, b"a", b"b")
    run(lambda: stage.log.trim({1: 1}))
    row = one(fetched(stage, fetch(("t", [(0, 2)]))))
    assert (row.error_code, row.high_watermark, row.records) == (0, 2, b"")
    for offset in (3, 0, -1, 2**62):
        row = one(fetched(stage, fetch(("t", [(0, offset)]))))
        marks = (row.high_watermark, row.last_stable_offset, row.log_start_offset)
        assert (row.error_code, marks, row.records) == (1, (-1, -1, -1), b"")


def test_isolation_decides_between_null_and_empty_aborted_transactions() -> None:
    stage = DataStage()
    stage.topic("t")
    assert one(fetched(stage, fetch(("t", [(0, 0)])))).aborted_transactions is None
    assert one(fetched(stage, fetch(("t", [(0, 0)]), isolation=1))).aborted_transactions == ()


def test_one_budget_serves_the_request_and_the_first_batch_is_returned_once_anyway() -> None:
    stage = DataStage()
    stage.topic("t", 8)
    sizes_written = [commit(stage, stream, b"x" * 500) for stream in range(1, 9)]
    large = sizes_written[0]
    wants = [(number, 0) for number in range(8)]
    answer = fetched(stage, fetch(("t", wants), max_bytes=1))
    assert sizes(answer) == [large, 0, 0, 0, 0, 0, 0, 0]
    answer = fetched(stage, fetch(("t", wants), partition_bytes=1))
    assert sizes(answer) == [large, 0, 0, 0, 0, 0, 0, 0]
    answer = fetched(stage, fetch(("t", wants), max_bytes=3 * large))
    assert sizes(answer) == [large, large, large, 0, 0, 0, 0, 0]
    assert sizes(fetched(stage, fetch(("t", wants), max_bytes=-5)))[0] == large


class NotingLog(MemoryLog):
    """Remembers the budgets it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.budgets: list[int] = []

    async def read(
        self,
        wanted: Sequence[StreamRead],
        *,
        bytes_max: int,
        deadline_s: float,
        at_least_one: bool = True,
    ) -> list[Fetched]:
        self.budgets.append(bytes_max)
        return await super().read(
            wanted, bytes_max=bytes_max, deadline_s=deadline_s, at_least_one=at_least_one
        )


def test_the_brokers_own_cap_bounds_what_a_client_may_ask_for() -> None:
    log = NotingLog()
    stage = DataStage(log=log)
    stage.topic("t")
    commit(stage, 1, b"a")
    fetched(stage, fetch(("t", [(0, 0)]), max_bytes=2**31 - 1, min_bytes=2**31 - 1))
    assert set(log.budgets) == {RESPONSE_BYTES_MAX}


def test_an_answer_is_bounded_but_never_less_than_was_waited_for() -> None:
    log = NotingLog()
    stage = DataStage(log=log)
    stage.topic("t", 2)
    commit(stage, 1, b"a")

    def budgets(min_bytes: int, max_bytes: int = 50 << 20) -> set[int]:
        log.budgets.clear()
        fetched(stage, fetch(("t", [(0, 0)]), max_bytes=max_bytes, min_bytes=min_bytes))
        return set(log.budgets)

    assert budgets(1) == {ANSWER_BYTES}
    assert budgets(20 << 20) == {20 << 20}
    assert budgets(1, max_bytes=1000) == {1000}


def test_what_is_read_in_parts_is_one_answer_within_one_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_read, "STREAMS_PER_READ", 3)
    log = NotingLog()
    stage = DataStage(log=log)
    stage.topic("t", 8)
    large = max(commit(stage, stream, b"x" * 500) for stream in range(1, 9))
    wants = [(number, 0) for number in range(8)]
    assert sizes(fetched(stage, fetch(("t", wants)))) == [large] * 8
    answer = fetched(stage, fetch(("t", wants), max_bytes=4 * large))
    assert sizes(answer) == [large] * 4 + [0] * 4
    assert [row.high_watermark for row in rows(answer)] == [1] * 8
    answer = fetched(stage, fetch(("t", wants), max_bytes=1))
    assert sizes(answer) == [large] + [0] * 7
    log.damaged = set(range(1, 5))  # also what comes first in a later part is returned anyway
    answer = fetched(stage, fetch(("t", wants), max_bytes=1))
    assert sizes(answer) == [0] * 4 + [large] + [0] * 3


def test_unknown_topics_are_3_by_name_and_100_by_id_and_unknown_partitions_3() -> None:
    stage = DataStage()
    stage.topic("t")
    commit(stage, 1, b"a")
    wants = [("t", [(0, 0), (7, 0)]), ("nothing", [(0, 0)])]
    by_name = fetched(stage, fetch(*wants))
    assert codes(by_name) == [0, 3, 3]
    by_id = fetched(stage, fetch(*wants), 13)
    assert codes(by_id) == [0, 3, 100]
    unknown = rows(by_id)[2]
    assert unknown.aborted_transactions == ()
    assert (unknown.high_watermark, unknown.last_stable_offset, unknown.records) == (-1, -1, b"")
    assert [topic.topic_id for topic in by_id.responses] == [topic_id("t"), topic_id("nothing")]


def test_leader_epochs_older_than_ours_are_74_and_newer_75() -> None:
    stage = DataStage()
    stage.topic("t")
    commit(stage, 1, b"a")
    for epoch, code in ((-1, 0), (0, 0), (1, 75), (9, 75), (-2, 74)):
        answer = fetched(stage, fetch(("t", [(0, 0)]), epoch=epoch))
        assert codes(answer) == [code]
    assert one(fetched(stage, fetch(("t", [(0, 0)]), epoch=3))).aborted_transactions is None


def test_a_client_that_says_it_is_a_replica_reads_nothing() -> None:
    stage = DataStage()
    stage.topic("t")
    commit(stage, 1, b"a")
    old = FetchRequest(replica_id=1, topics=fetch(("t", [(0, 0)])).topics)
    new = FetchRequest(
        replica_state=FetchReplicaState(replica_id=0), topics=fetch(("t", [(0, 0)])).topics
    )
    for request, version in ((old, 12), (new, 15)):
        answer = fetched(stage, request, version)
        assert codes(answer) == [29]
        assert sizes(answer) == [0]


def test_an_empty_answer_needs_a_proof_and_a_full_one_does_not() -> None:
    stage = DataStage()
    stage.topic("t")
    commit(stage, 1, b"a")
    assert sizes(fetched(stage, fetch(("t", [(0, 0)]))))[0] > 0
    assert stage.log.proofs == 0
    assert sizes(fetched(stage, fetch(("t", [(0, 1)])))) == [0]
    assert stage.log.proofs == 1


def test_what_another_broker_acknowledged_is_found_without_waiting() -> None:
    stage = DataStage()
    stage.topic("t")
    stage.log.foreign.append((1, accepted(batch(b"there"))))
    row = one(fetched(stage, fetch(("t", [(0, 0)]), wait_ms=0)))
    assert (row.high_watermark, records_bytes(row) > 0) == (1, True)


def test_out_of_range_is_said_only_after_a_proof() -> None:
    stage = DataStage()
    stage.topic("t")
    stage.log.foreign.append((1, accepted(batch(b"a", b"b"))))
    assert codes(fetched(stage, fetch(("t", [(0, 1)])))) == [0]
    assert codes(fetched(stage, fetch(("t", [(0, 3)]), wait_ms=60_000))) == [1]  # and at once


def test_without_a_proof_nothing_is_called_empty_or_out_of_range_but_data_is_served() -> None:
    stage = DataStage()
    stage.topic("t", 3)
    commit(stage, 1, b"a")
    stage.log.provable = False
    assert codes(fetched(stage, fetch(("t", [(1, 0), (2, 5)])))) == [6, 6]
    answer = fetched(stage, fetch(("t", [(0, 0), (2, 5)])))
    assert codes(answer) == [0, 6]
    assert sizes(answer)[0] > 0


def test_a_state_that_nobody_vouched_for_lately_serves_nothing() -> None:
    stage = DataStage()
    stage.topic("t")
    commit(stage, 1, b"a")
    stage.log.stale = True
    (code,) = codes(fetched(stage, fetch(("t", [(0, 0)]), wait_ms=60_000)))
    assert code == 6
    assert code in RETRIABLE


def test_a_damaged_batch_is_a_storage_error_that_old_clients_understand() -> None:
    stage = DataStage()
    stage.topic("t")
    commit(stage, 1, b"a")
    stage.log.damaged.add(1)
    assert codes(fetched(stage, fetch(("t", [(0, 0)]), wait_ms=60_000))) == [56]
    assert codes(fetched(stage, fetch(("t", [(0, 0)])), 5)) == [6]


def test_an_object_store_that_does_not_answer_is_retriable() -> None:
    stage = DataStage()
    stage.topic("t")
    commit(stage, 1, b"a")
    stage.log.read_failure = Unavailable("down")
    assert codes(fetched(stage, fetch(("t", [(0, 0)]), wait_ms=60_000))) == [6]


def test_a_topic_that_cannot_be_looked_up_is_retriable() -> None:
    stage = DataStage()
    stage.topics.failure = Unavailable("down")
    assert codes(fetched(stage, fetch(("t", [(0, 0)])))) == [6]


@pytest.mark.parametrize("version", range(4, 19))
def test_answers_can_be_sent_in_every_version(version: int) -> None:
    stage = DataStage()
    stage.topic("t", 2)
    commit(stage, 1, b"a")
    answer = fetched(stage, fetch(("t", [(0, 0), (1, 9)]), ("no", [(0, 0)])), version)
    assert encode(answer, version)


def test_a_fetch_of_a_topic_that_is_new_to_this_broker_reads_through() -> None:
    stage = DataStage()
    stage.topic("t")
    commit(stage, 1, b"a")
    stage.topics.unseen, stage.topics.by_name = stage.topics.by_name, {}
    assert codes(fetched(stage, fetch(("t", [(0, 0)])))) == [int(ErrorCode.NONE)]


class LateLog(MemoryLog):
    """Learns of stream 1 with the first proof."""

    def catch_up(self) -> None:
        self.create(1)
        super().catch_up()


def test_a_stream_that_was_made_elsewhere_a_moment_ago_is_looked_for_before_it_is_unknown() -> None:
    stage = DataStage(log=LateLog())
    stage.topic("t")
    stage.log.drop(1)
    assert codes(fetched(stage, fetch(("t", [(0, 0)])))) == [0]
