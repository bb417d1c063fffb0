import asyncio

import pytest
from tests.broker.data_requests import produce, produced, produced_codes, produced_rows
from tests.broker.data_stage import DataStage, batch, idempotent, topic_id
from tests.broker.whole import finish

from lakelog.broker.call import Answer
from lakelog.broker.produce import handle
from lakelog.model.errors import RETRIABLE
from lakelog.model.failures import Unavailable
from lakelog.records.build import BatchOptions
from lakelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)


def test_batches_get_the_next_offsets_and_the_log_start() -> None:
    stage = DataStage()
    stage.topic("t")
    first = produced(stage, produce(("t", [(0, batch(b"a", b"b"))])))
    second = produced(stage, produce(("t", [(0, batch(b"c"))])))
    assert first == [PartitionProduceResponse(0, 0, 0, -1, 0)]
    assert second == [PartitionProduceResponse(0, 0, 2, -1, 0)]


def test_good_partitions_are_stored_beside_bad_ones_each_with_its_own_code() -> None:
    stage = DataStage()
    stage.topic("t", 3)
    corrupt = bytearray(batch(b"x"))
    corrupt[-1] ^= 1
    made = produced(
        stage,
        produce(
            ("t", [(0, batch(b"a")), (1, memoryview(corrupt)), (2, batch(b"b")), (9, batch())]),
            ("unknown", [(0, batch())]),
            ("bad name!", [(0, batch())]),
        ),
    )
    assert produced_codes(made) == [0, 2, 0, 3, 3, 3]
    assert [row.base_offset for row in made] == [0, -1, 0, -1, -1, -1]
    assert {stream: len(stored) for stream, stored in stage.log.stored.items()} == {1: 1, 3: 1}


def test_from_v13_topics_are_ids_and_an_unknown_one_is_100() -> None:
    stage = DataStage()
    stage.topic("t")
    request = produce(("t", [(0, batch()), (5, batch())]), ("other", [(0, batch())]))

    async def run() -> Answer:
        return await finish(await handle(stage.broker, stage.call(13), request))

    answer = asyncio.run(run())
    assert isinstance(answer, ProduceResponse)
    assert produced_codes(produced_rows(answer)) == [0, 3, 100]
    assert [topic.topic_id for topic in answer.responses] == [topic_id("t"), topic_id("other")]


def test_a_topic_that_is_new_to_this_broker_is_read_through() -> None:
    stage = DataStage()
    stage.topic("t")
    stage.topics.unseen, stage.topics.by_name = stage.topics.by_name, {}
    assert produced_codes(produced(stage, produce(("t", [(0, batch())])))) == [0]


def test_a_topic_that_cannot_be_looked_up_is_retriable_and_the_others_go_on() -> None:
    stage = DataStage()
    stage.topic("t")
    stage.topics.failure = Unavailable("down")
    made = produced_codes(produced(stage, produce(("new", [(0, batch())]), ("t", [(0, batch())]))))
    assert made[0] in RETRIABLE
    assert made[1] == 0


def test_produce_never_creates_a_topic() -> None:
    stage = DataStage()
    assert produced_codes(produced(stage, produce(("t", [(0, batch())])))) == [3]
    assert stage.topics.by_name == {}


def test_acks_other_than_minus_1_0_1_are_21_on_every_partition() -> None:
    stage = DataStage()
    stage.topic("t", 2)
    for acks in (2, -2, 3, 32767):
        made = produced(stage, produce(("t", [(0, batch()), (1, batch())]), acks=acks))
        assert produced_codes(made) == [21, 21]
    assert stage.log.stored == {}


def test_one_transactional_batch_or_a_transactional_id_is_53_on_every_partition() -> None:
    stage = DataStage()
    stage.topic("t", 2)
    transactional = batch(
        options=BatchOptions(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    )
    request = produce(("t", [(0, batch()), (1, transactional)]))
    assert produced_codes(produced(stage, request)) == [53, 53]
    junk = transactional[:-1]
    for bad in (("t", [(9, transactional)]), ("none", [(0, transactional)]), ("t", [(1, junk)])):
        assert produced_codes(produced(stage, produce(("t", [(0, batch())]), bad))) == [53, 53]
    request = ProduceRequest("mine", -1, 1_000, produce(("t", [(0, batch())])).topic_data)
    assert produced_codes(produced(stage, request)) == [53]
    assert stage.log.stored == {}


def test_a_retry_gets_the_original_offset_and_timestamp() -> None:
    stage = DataStage()
    stage.topic("t")
    sent = idempotent(77, 0, 0, b"a", b"b")
    first = produced(stage, produce(("t", [(0, sent)])))
    produced(stage, produce(("t", [(0, idempotent(77, 0, 2, b"c"))])))
    again = produced(stage, produce(("t", [(0, sent)])))
    assert first == [PartitionProduceResponse(0, 0, 0, -1, 0)]
    assert again == [PartitionProduceResponse(0, 0, 0, 1_794_717_942_001, 0)]
    assert [len(stored) for stored in stage.log.stored.values()] == [2]


def test_gaps_are_45_and_old_epochs_47() -> None:
    stage = DataStage()
    stage.topic("t")
    produced(stage, produce(("t", [(0, idempotent(77, 1, 0, b"a"))])))
    assert produced_codes(produced(stage, produce(("t", [(0, idempotent(77, 1, 5, b"b"))])))) == [
        45
    ]
    assert produced_codes(produced(stage, produce(("t", [(0, idempotent(77, 0, 1, b"b"))])))) == [
        47
    ]
    assert produced_codes(produced(stage, produce(("t", [(0, idempotent(77, 2, 3, b"b"))])))) == [
        45
    ]


@pytest.mark.parametrize("others", [0, 1])
def test_a_producer_id_that_was_never_given_out_is_59_and_takes_no_place(others: int) -> None:
    stage = DataStage()
    stage.topic("t", 2)
    more = [(1, batch())] * others  # with one batch alone and with more: two ways of a request
    for producer in (stage.cluster.counter, (1 << 63) - 1):
        sent = produce(("t", [(0, idempotent(producer, 0, 0)), *more]))
        assert produced_codes(produced(stage, sent)) == [59] + [0] * others
    assert len(stage.log.domain.state.producers) == 0


def test_a_producer_id_that_another_broker_gave_out_is_asked_for_once() -> None:
    stage = DataStage()
    stage.topic("t")
    stage.cluster.counter += 1_000
    for sequence in range(2):
        sent = produce(("t", [(0, idempotent(stage.cluster.counter - 1, 0, sequence))]))
        assert produced_codes(produced(stage, sent)) == [0]
    assert stage.cluster.asked == 1


def test_while_the_ids_cannot_be_asked_for_the_producer_tries_again() -> None:
    stage = DataStage()
    stage.topic("t")
    stage.cluster.failure = Unavailable("down")
    sent = produce(("t", [(0, idempotent(stage.cluster.counter, 0, 0))]))
    assert produced_codes(produced(stage, sent)) == [19]


@pytest.mark.parametrize("others", [0, 1])
def test_without_room_for_producers_a_new_one_tries_again_and_known_ones_go_on(others: int) -> None:
    stage = DataStage()
    stage.topic("t", 2)
    more = [(1, batch())] * others
    produced(stage, produce(("t", [(0, idempotent(7, 0, 0))])))
    stage.log.producers_full = True
    for producer, sequence, code in ((8, 0, 19), (7, 1, 0)):
        sent = produce(("t", [(0, idempotent(producer, 0, sequence)), *more]))
        assert produced_codes(produced(stage, sent)) == [code] + [0] * others
    assert len(stage.log.domain.state.producers) == 1


def test_with_idempotence_off_a_batch_with_a_producer_id_is_refused() -> None:
    stage = DataStage()
    stage.topic("t", 2)
    stage.options.idempotence = False
    made = produced(stage, produce(("t", [(0, idempotent(7, 0, 0)), (1, batch())])))
    assert produced_codes(made) == [42, 0]


def test_log_append_time_is_in_the_answer_and_in_the_batch() -> None:
    stage = DataStage()
    stage.topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    made = produced(stage, produce(("t", [(0, batch(timestamp_ms=5))])))
    assert made[0].log_append_time_ms == stage.clock.wall_ms


def test_a_batch_larger_than_the_topic_allows_is_10_and_record_errors_are_listed() -> None:
    stage = DataStage()
    stage.topic("small", configs={"max.message.bytes": "100"})
    stage.topic("compact", configs={"cleanup.policy": "compact"})
    (made,) = produced(stage, produce(("small", [(0, batch(b"x" * 100))])))
    assert (made.error_code, made.base_offset, made.log_start_offset) == (10, -1, -1)
    (made,) = produced(stage, produce(("compact", [(0, batch(b"a", key=None))])))
    assert made.error_code == 87
    assert [error.batch_index for error in made.record_errors] == [0]
    assert made.error_message


def test_null_and_empty_records_are_87() -> None:
    stage = DataStage()
    stage.topic("t")
    made = produced(stage, produce(("t", [(0, None), (0, memoryview(b""))])))
    assert produced_codes(made) == [87, 87]


def test_a_partition_that_stands_twice_in_a_request_is_refused_and_nothing_of_it_is_stored() -> (
    None
):
    stage = DataStage()
    stage.topic("t", 2)
    made = produced(stage, produce(("t", [(0, batch(b"a")), (1, batch(b"b")), (0, batch(b"c"))])))
    assert produced_codes(made) == [87, 0, 87]
    assert list(stage.log.stored) == [2]
    made = produced(stage, produce(("t", [(0, batch(b"a"))]), ("t", [(0, batch(b"c"))])))
    assert produced_codes(made) == [87, 87]
