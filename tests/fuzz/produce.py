"""Hostile Produce requests for the kernels that take them many at a time.

What the kernel makes rows of is what the ordinary way accepts, one request at a time; whatever it
is given, it reads and writes nothing outside its buffers (`tests.fuzz.sanitized`).
"""

import random
from collections.abc import Callable
from functools import cache

import numpy as np
from crc32c import crc32c
from tests.broker.data_stage import DataStage
from tests.fuzz.kernels import REFUSALS, longs
from tests.server.produce_ways import TOPICS, frames_of
from tests.sides import native

from lakelog.broker.produce_checks import batch_rules, is_slow
from lakelog.broker.produce_rows import FRAME_BYTES_MAX, PLAIN_VERSIONS, ProduceRows, RequestColumn
from lakelog.broker.produce_topics import TopicTable
from lakelog.model.ids import TopicId
from lakelog.records.acceptance import AcceptedBatch, TimestampType, inspect
from lakelog.records.batch_rows import COLUMNS, BatchColumn
from lakelog.wire.apis import ApiKey
from lakelog.wire.codec import decode
from lakelog.wire.frame_runs import SIZE_BYTES, FrameRun
from lakelog.wire.framing import parse_request_header
from lakelog.wire.messages.produce import ProduceRequest
from lakelog.wire.schema import ProtocolError

CONVERSATIONS = 1_000
"""Of so many conversations one is damaged: making them takes ten times as long as reading them."""

Row = tuple[int, bytes, int, int, int, int, int, int]
"""Stream, bytes, records, least and greatest time, producer, epoch and sequence of a batch."""


@cache
def stage() -> DataStage:
    made = DataStage()
    for name, configs in TOPICS.items():
        made.topic(name, 3, configs=configs)
    return made


@cache
def rows() -> ProduceRows:
    return ProduceRows(stage().broker)


@cache
def known_topics() -> TopicTable:
    made = TopicTable()
    for name, topic in stage().topics.by_name.items():
        made.add(name.encode(), topic)
    return made


@cache
def conversation(number: int) -> bytes:
    """What one client sends, whole."""
    return b"".join(frames_of(random.Random(number)))


def plain_rows(frame: memoryview) -> list[Row] | None:
    """What the ordinary way would store for this frame, or None when it is not plain."""
    try:
        header = parse_request_header(frame)
        if header.api_key != ApiKey.PRODUCE or header.api_version not in PLAIN_VERSIONS:
            return None
        request, _ = decode(ProduceRequest, header.api_version, frame[header.body_start :])
    except ProtocolError:
        return None
    if request.acks not in (-1, 1) or request.transactional_id is not None:
        return None
    found: list[Row] = []
    for topic_data in request.topic_data:
        topics = stage().topics.by_name
        by_id = {topic.id: topic for topic in topics.values()}
        by_version = by_id.get(TopicId(topic_data.topic_id))
        topic = by_version if header.api_version >= 13 else topics.get(topic_data.name)
        if topic is None or not topic_data.partition_data:
            return None
        rules = batch_rules(
            topic.settings, now_ms=stage().clock.now_ms(), version=header.api_version
        )
        for partition in topic_data.partition_data:
            stream, data = topic.stream(partition.index), partition.records
            if stream is None or data is None or is_slow(data):
                return None
            batch = inspect(data, rules)
            if not isinstance(batch, AcceptedBatch) or batch.transactional:
                return None
            appends = topic.settings.timestamp_type is TimestampType.LOG_APPEND_TIME
            if (batch.data != data and not appends) or stream in {row[0] for row in found}:
                return None
            found.append(
                (
                    stream,
                    bytes(data),
                    batch.record_count,
                    batch.min_timestamp_ms,
                    batch.max_timestamp_ms,
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.base_sequence,
                )
            )
    return found or None


def fuzz_requests(chance: random.Random) -> None:
    """Requests that are mostly good, some bits of them flipped."""
    for frame in frames_of(chance):
        view = memoryview(frame)
        run = FrameRun(view, 1)
        plain = rows().take(run)
        expected = plain_rows(view[SIZE_BYTES:])
        if plain is None:
            continue  # it may always decline
        assert expected is not None, frame.hex()
        numbers = plain.batches.rows.tolist()
        assert [_told(view, row) for row in numbers] == expected, frame.hex()
        assert len(frame) <= FRAME_BYTES_MAX


def _told(data: memoryview, row: list[int]) -> Row:
    start = row[BatchColumn.START]
    return (
        row[BatchColumn.STREAM],
        bytes(data[start : start + row[BatchColumn.LENGTH]]),
        row[BatchColumn.RECORDS],
        row[BatchColumn.LEAST_MS],
        row[BatchColumn.GREATEST_MS],
        row[BatchColumn.PRODUCER],
        row[BatchColumn.EPOCH],
        row[BatchColumn.SEQUENCE],
    )


def fuzz_spans(chance: random.Random) -> None:
    """Any bytes, cut anywhere, with tables and rooms that need not fit."""
    whole = conversation(chance.randrange(CONVERSATIONS))
    mixed = bytearray(whole[: chance.choice((40, 500, 5_000, 100_000))])
    for _ in range(chance.choice((0, 1, 20))):
        mixed[chance.randrange(len(mixed))] = chance.randrange(256)
    start = chance.choice((0, 0, chance.randrange(len(mixed))))
    end = chance.choice((len(mixed), chance.randrange(start, len(mixed) + 1)))
    table = known_topics().kernel_table()
    room = np.zeros((chance.choice((0, 1, 3, 500)), len(RequestColumn)), np.int64)
    row_room = np.zeros((chance.choice((0, 1, 3, 500)), COLUMNS), np.int64)
    version = chance.choice((3, 8, 9, 12, 13, -1, 99))
    rules = (version, 10**12, 5, chance.choice((100, 1 << 22)), 1 << 17, 7)
    span = (start, end, chance.choice((0, 0, 1)))
    try:
        native().parse_produce(bytes(mixed), span, table, rules, room, row_room)
    except REFUSALS:
        return


def fuzz_answers(chance: random.Random) -> None:
    """Requests and rows of any numbers."""
    count = chance.choice((0, 1, 3, 9))
    requests = longs(chance, (chance.choice((0, 1, 3)), len(RequestColumn)), count)
    made = longs(chance, (count, COLUMNS), 20)
    numbers = [longs(chance, (count,), 9) for _ in range(3)]
    codes = np.zeros(count, np.int16)
    try:
        native().answer_produce(chance.randrange(3, 14), bytes(20), requests, made, codes, *numbers)
    except REFUSALS:
        return


def fuzz_layout(chance: random.Random) -> None:
    """Rows that may lie anywhere, in too little room as well."""
    count = chance.choice((1, 1, 2, 5))
    buffers: list[bytes | bytearray | memoryview] = [
        bytes(chance.choice((0, 61, 200))) for _ in range(chance.choice((0, 1, 2)))
    ]
    made = longs(chance, (count, COLUMNS), 70)
    if chance.random() < 0.8:
        made[:, BatchColumn.BUFFER] = 0
        made[:, BatchColumn.LENGTH] = 61
        made[:, BatchColumn.STREAM] = 1
    order = longs(chance, (count,), count - 1)
    out, starts = np.zeros(chance.choice((60, 300, 2_000)), np.uint8), np.zeros(count, np.int64)
    try:
        end, crc = native().lay_out(
            buffers, made, order, out, starts, 49, chance.choice((49, 93, 137))
        )
    except REFUSALS:
        return
    assert crc == crc32c(out.data[:end])


TARGETS: dict[str, Callable[[random.Random], None]] = {
    "produce.requests": fuzz_requests,
    "produce.spans": fuzz_spans,
    "produce.answers": fuzz_answers,
    "produce.layout": fuzz_layout,
}
