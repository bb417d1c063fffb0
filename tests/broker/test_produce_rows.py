"""Which requests become rows, what the rows say, and what is answered for them."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.data_requests import produce
from tests.broker.data_stage import DataStage, batch, idempotent
from tests.sides import native

from lakelog.broker.produce_rows import (
    FRAME_BYTES_MAX,
    LOOP_HELD_S_MAX,
    PlainRequests,
    ProduceRows,
    RequestColumn,
    encode_answers,
)
from lakelog.log.values import Appended
from lakelog.model.failures import OutcomeUnknown
from lakelog.records.batch_rows import COLUMNS, BatchColumn, BatchRows
from lakelog.records.build import BatchOptions
from lakelog.records.codecs import Codec
from lakelog.records.header import ATTRIBUTES_OFFSET, CRC_OFFSET, batch_crc
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.frame_runs import FrameRun
from lakelog.wire.framing import encode_request
from lakelog.wire.messages.produce import PartitionProduceResponse, ProduceRequest

VERSIONS = range(3, 14)


def run_of(requests: Sequence[ProduceRequest], version: int = 9) -> FrameRun:
    """The frames of these requests, as a connection receives them."""
    frames = [
        b"".join(
            bytes(part)
            for part in encode_request(APIS[ApiKey.PRODUCE], version, number, "me", request)
        )
        for number, request in enumerate(requests)
    ]
    return FrameRun(memoryview(b"".join(frames)), len(frames))


def corrupt() -> memoryview:
    data = bytearray(batch(b"x"))
    data[-1] ^= 1
    return memoryview(data)


def taken(stage: DataStage, request: ProduceRequest, version: int = 9) -> bool:
    run = run_of([request], version)
    plain = ProduceRows(stage.broker).take(run)
    assert (plain is None) == (run.count == 1), "what is not taken stays in the run"
    return plain is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_good_acknowledged_batches_for_known_partitions_are_plain(version: int) -> None:
    stage = DataStage()
    stage.topic("t", 3)
    stage.topic("u")
    for request in (
        produce(("t", [(1, batch())])),
        produce(("t", [(1, batch())]), acks=1),
        produce(("t", [(2, batch(b"a", b"b")), (0, idempotent(7, 0, 0, b"a"))])),
        produce(("t", [(0, batch())]), ("u", [(0, batch())])),
        produce(("t", [(0, batch(options=BatchOptions(codec=Codec.GZIP)))])),
    ):
        assert taken(stage, request, version)


def test_anything_else_takes_the_ordinary_way() -> None:
    stage = DataStage()
    stage.topic("t", 2)
    stage.topic("__consumer_offsets")
    large = batch(bytes(FRAME_BYTES_MAX))
    for request in (
        produce(("t", [(0, batch())]), acks=0),
        produce(("t", [(0, batch())]), acks=5),
        produce(("t", [(0, corrupt())])),
        produce(("t", [(0, memoryview(b""))])),
        produce(("t", [(0, None)])),
        produce(("t", [(0, batch()), (1, corrupt())])),
        produce(("t", [(0, batch()), (0, batch())])),
        produce(("t", [(2, batch())])),
        produce(("t", [(-1, batch())])),
        produce(("t", [(0, idempotent(10**9, 0, 0, b"a"))])),
        produce(("t", [(0, batch(timestamp_ms=stage.clock.wall_ms + 10**8))])),
        produce(("other", [(0, batch())])),
        produce(("__consumer_offsets", [(0, batch())])),
        produce(("t", [])),
        produce(),
        produce(("t", [(0, large)])),
        ProduceRequest("tx", -1, 1_000, produce(("t", [(0, batch())])).topic_data),
        ProduceRequest("", -1, 1_000, produce(("t", [(0, batch())])).topic_data),
    ):
        assert not taken(stage, request)
    frame = bytearray(run_of([produce(("t", [(0, batch())]))]).data)
    for version in (-1, 0, 2, 14):
        frame[6:8] = version.to_bytes(2, "big", signed=True)
        assert ProduceRows(stage.broker).take(FrameRun(memoryview(frame), 1)) is None


def falsified(start: int, size: int, value: int) -> memoryview:
    """A batch of an idempotent producer with another number in its header, and the CRC to it."""
    made = bytearray(idempotent(7, 0, 0, b"a", b"b"))
    made[start : start + size] = value.to_bytes(size, "big", signed=True)
    made[CRC_OFFSET:ATTRIBUTES_OFFSET] = batch_crc(memoryview(made)).to_bytes(4, "big")
    return memoryview(made)


@pytest.mark.parametrize(
    ("start", "size", "value"),
    [
        (0, 8, 1),  # the base offset
        (16, 1, 1),  # magic
        (21, 2, 5),  # a codec that nobody knows
        (21, 2, 8),  # LogAppendTime
        (21, 2, 16),  # of a transaction
        (21, 2, 32),  # a marker
        (21, 2, 64),
        (21, 2, -32_768),
        (23, 4, 0),  # the last offset delta
        (23, 4, 2),
        (23, 4, 2**31 - 1),
        (27, 8, 0),  # the base timestamp, which the greatest contradicts then
        (35, 8, 0),  # the greatest timestamp
        (43, 8, 10**9),  # a producer id that was never given out
        (43, 8, -2),
        (51, 2, -1),  # the producer's epoch
        (53, 4, -1),  # its sequence
        (57, 4, 0),  # the count of records
        (57, 4, 1),
        (57, 4, 3),
        (57, 4, -1),
    ],
)
def test_a_header_that_is_not_plain_takes_the_ordinary_way(
    start: int, size: int, value: int
) -> None:
    stage = DataStage()
    stage.topic("t")
    assert taken(stage, produce(("t", [(0, falsified(43, 8, 7))])))
    assert not taken(stage, produce(("t", [(0, falsified(start, size, value))])))


def test_what_is_plain_is_taken_up_to_the_first_that_is_not() -> None:
    stage = DataStage()
    stage.topic("t", 2)
    good, bad = produce(("t", [(1, batch(b"a"))])), produce(("t", [(0, corrupt())]))
    run = run_of([good, good, bad, good])
    rows = ProduceRows(stage.broker)
    plain = rows.take(run)
    assert plain is not None
    assert (len(plain), run.count) == (2, 2)
    assert rows.take(run) is None
    run.take_frame()
    last = rows.take(run)
    assert last is not None
    assert (len(last), run.count, run.size_bytes) == (1, 0, 0)
    assert last.requests[:, RequestColumn.CORRELATION].tolist() == [3]


def test_rows_say_what_was_sent() -> None:
    stage = DataStage()
    stage.topic("t", 3)
    first, second = batch(b"a", b"b", timestamp_ms=5), idempotent(7, 1, 9, b"c")
    run = run_of([produce(("t", [(2, first), (0, second)]))])
    plain = ProduceRows(stage.broker).take(run)
    assert plain is not None
    rows = plain.batches
    for number, sent in enumerate((first, second)):
        start, length = rows.rows[number, [BatchColumn.START, BatchColumn.LENGTH]].tolist()
        assert plain.data[start : start + length] == sent
    assert rows.column(BatchColumn.STREAM).tolist() == [3, 1]
    assert rows.column(BatchColumn.PARTITION).tolist() == [2, 0]
    assert rows.column(BatchColumn.RECORDS).tolist() == [2, 1]
    assert rows.column(BatchColumn.LEAST_MS).tolist()[0] == 5
    assert rows.column(BatchColumn.GREATEST_MS).tolist()[0] == 6
    assert rows.column(BatchColumn.PRODUCER).tolist() == [-1, 7]
    assert rows.column(BatchColumn.EPOCH).tolist()[1] == 1
    assert rows.column(BatchColumn.SEQUENCE).tolist()[1] == 9
    assert rows.size_bytes == len(first) + len(second)


def test_requests_with_another_time_out_or_version_are_answered_apart() -> None:
    stage = DataStage()
    stage.topic("t")
    requests = [
        ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=data.topic_data)
        for timeout_ms, data in (
            (5_000, produce(("t", [(0, batch())]))),
            (5_000, produce(("t", [(0, batch())]))),
            (9_000, produce(("t", [(0, batch())]))),
        )
    ]
    run = run_of(requests)
    rows = ProduceRows(stage.broker)
    groups = [rows.take(run), rows.take(run)]
    assert [(len(group), group.timeout_ms) for group in groups if group is not None] == [
        (2, 5_000),
        (1, 9_000),
    ]
    older = run_of(requests[:1], version=8)
    mixed = FrameRun(memoryview(bytes(run_of(requests[:1]).data) + bytes(older.data)), 2)
    groups = [rows.take(mixed), rows.take(mixed)]
    assert [group.version for group in groups if group is not None] == [9, 8]


def test_a_topic_that_changes_is_looked_up_again() -> None:
    stage = DataStage()
    stage.topic("t")
    rows = ProduceRows(stage.broker)
    beyond = produce(("t", [(1, batch())]))
    assert rows.take(run_of([produce(("t", [(0, batch())]))])) is not None
    assert rows.take(run_of([beyond])) is None
    stage.topic("t", 2)
    plain = rows.take(run_of([beyond]))
    assert plain is not None
    assert plain.batches.column(BatchColumn.STREAM).tolist() == [3]


def test_nothing_is_taken_while_the_log_has_no_room() -> None:
    stage = DataStage()
    stage.topic("t")
    stage.log.no_room = OutcomeUnknown("later")
    assert not taken(stage, produce(("t", [(0, batch())])))


def test_producers_are_not_taken_while_there_is_no_room_for_them() -> None:
    stage = DataStage()
    stage.topic("t")
    stage.log.producers_full = True
    assert not taken(stage, produce(("t", [(0, idempotent(7, 0, 0, b"a"))])))
    assert taken(stage, produce(("t", [(0, batch())])))


TOPIC_BYTES = b"..topicAtopicBBBB" + bytes(range(16))


@given(st.sampled_from(VERSIONS), st.lists(st.booleans(), min_size=1, max_size=20), st.data())
def test_the_kernel_writes_answers_as_the_codec_does(
    version: int, first_topic: list[bool], data: st.DataObject
) -> None:
    places = ((2, 6), (8, 9)) if version < 13 else ((17, 16), (1, 16))
    count = len(first_topic)
    rows = np.zeros((count, COLUMNS), dtype=np.int64)
    for number, is_first in enumerate(first_topic):
        topic = [BatchColumn.TOPIC_START, BatchColumn.TOPIC_LENGTH]
        rows[number, topic] = places[0 if is_first else 1]
    rows[:, BatchColumn.PARTITION] = range(count)
    ends = sorted({count, *data.draw(st.lists(st.integers(1, count), max_size=5))})
    requests = np.array([(number, 0, end, 0) for number, end in enumerate(ends)], dtype=np.int64)
    numbers = st.lists(st.integers(-1, (1 << 63) - 1), min_size=count, max_size=count)
    offsets, times, starts = (np.array(data.draw(numbers), dtype=np.int64) for _ in range(3))
    codes = np.array([number % 100 for number in range(count)], dtype=np.int16)
    view = memoryview(TOPIC_BYTES)
    plain = PlainRequests(version, view, requests, BatchRows([view], rows, 0), 0)
    responses = [
        PartitionProduceResponse(number, *numbers)
        for number, numbers in enumerate(
            zip(codes.tolist(), offsets.tolist(), times.tolist(), starts.tolist(), strict=True)
        )
    ]
    expected = b"".join(bytes(part) for part in encode_answers(plain, responses))
    written = native().answer_produce(version, view, requests, rows, codes, offsets, times, starts)
    assert written == expected


def test_the_writer_refuses_rows_and_requests_that_do_not_fit_together() -> None:
    rows = np.zeros((2, COLUMNS), dtype=np.int64)
    longs, codes = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int16)
    for ends, start, length in (
        ((3,), 0, 1),
        ((0, 2), 0, 1),
        ((1,), 0, 1),
        ((2,), 1, 5),
        ((2,), -1, 1),
    ):
        requests = np.array([(0, 0, end, 0) for end in ends], dtype=np.int64)
        rows[:, BatchColumn.TOPIC_START], rows[:, BatchColumn.TOPIC_LENGTH] = start, length
        with pytest.raises(ValueError, match="fit together"):
            native().answer_produce(9, b"topic", requests, rows, codes, longs, longs, longs)
    alone = np.array([(0, 0, 2, 0)], dtype=np.int64)
    with pytest.raises(ValueError, match="one outcome"):
        native().answer_produce(9, b"topic", alone, rows, codes[:1], longs, longs, longs)


def test_a_failure_is_told_with_its_text_and_the_others_keep_their_offsets() -> None:
    stage = DataStage()
    stage.topic("t", 2)
    rows = ProduceRows(stage.broker)
    plain = rows.take(run_of([produce(("t", [(0, batch())])), produce(("t", [(1, batch())]))]))
    assert plain is not None
    failed = Appended([0, 6], [7, -1], [-1, -1], {1: OutcomeUnknown("late")})
    (first, second) = rows.answer(plain, failed)
    assert b"late" not in bytes(first)
    assert b"late" in bytes(second)


def test_unpacking_pauses_for_the_loop() -> None:
    """Many batches that unpack to much are taken in several turns (R2)."""
    stage = DataStage()
    stage.topic("t")
    packed = batch(bytes(50_000), options=BatchOptions(codec=Codec.GZIP))
    run = run_of([produce(("t", [(0, packed)]))] * 5)
    ticking = stage.clock.monotonic_s

    def later() -> float:
        stage.clock.monotonic += 0.6 * LOOP_HELD_S_MAX
        return ticking()

    stage.clock.monotonic_s = later  # type: ignore[method-assign]  # time that flies
    rows = ProduceRows(stage.broker)
    sizes = []
    while run.count:
        plain = rows.take(run)
        assert plain is not None
        sizes.append(len(plain))
    assert sizes == [1] * 5


def test_a_group_is_handed_over_with_its_deadline() -> None:
    async def run() -> None:
        stage = DataStage()
        stage.topic("t")
        rows = ProduceRows(stage.broker)
        plain = rows.take(run_of([produce(("t", [(0, batch())]))]))
        assert plain is not None
        told: list[object] = []
        rows.hand_over(plain, arrived_s=100.0, settle=told.append)
        assert stage.log.deadlines_s == [100.0 + plain.timeout_ms / 1000]
        assert told == [Appended([0], [0], [-1])]

    asyncio.run(run())
