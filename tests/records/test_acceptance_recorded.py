"""What a real Kafka 4.1.1 broker answered to these very bytes, and what we answer.

Recorded with one plain topic (`p1`), one with LogAppendTime (`lat`) and one compacted (`cmp`).
"""

from typing import NamedTuple

import pytest

from lakelog.model.errors import ErrorCode
from lakelog.records.acceptance import (
    AcceptedBatch,
    BatchRules,
    RejectedBatch,
    TimestampType,
    inspect,
)
from lakelog.records.header import batch_crc, is_transactional, parse_header

NOW_MS = 1_794_717_942_324
CREATE = BatchRules(now_ms=NOW_MS, produce_version=9)
RULES = {
    "p1": CREATE,
    "lat": BatchRules(
        now_ms=NOW_MS, produce_version=9, timestamp_type=TimestampType.LOG_APPEND_TIME
    ),
    "cmp": BatchRules(now_ms=NOW_MS, produce_version=9, compacted=True),
}


class Pair(NamedTuple):
    name: str
    topic: str
    code: int
    bad: tuple[int, ...]
    sent: str


HEAD = "000000000000000000000042ffffffff02"
TAIL = "0000000210000000026b0276000e00000201027700"
"""Two records: ("k", "v") and (null, "w")."""
NONE = "ffffffffffffffffffffffffffff"
"""Neither producer id nor epoch nor sequence."""

PAIRS = [
    Pair(
        "two records",
        "p1",
        0,
        (),
        HEAD + "4e592e91000000000001000001a1dd8681d7000001a1dd8681d7" + NONE + TAIL,
    ),
    Pair(
        "base offset 5",
        "p1",
        87,
        (),
        "000000000000000500000042ffffffff024940f79f000000000001000001a1dd8681e9000001a1dd8681e9"
        + NONE
        + TAIL,
    ),
    Pair("no bytes", "p1", 87, (), ""),
    Pair(
        "two batches",
        "p1",
        87,
        (),
        HEAD
        + "f5f0b360000000000001000001a1dd8681f1000001a1dd8681f1"
        + NONE
        + TAIL
        + HEAD
        + "f5f0b360000000000001000001a1dd8681f1000001a1dd8681f1"
        + NONE
        + TAIL,
    ),
    Pair(
        "cut short",
        "p1",
        87,
        (),
        HEAD
        + "015613e5000000000001000001a1dd8681f2000001a1dd8681f2"
        + NONE
        + "0000000210000000026b0276000e00000201",
    ),
    Pair(
        "a partial batch behind",
        "p1",
        0,
        (),
        HEAD
        + "015613e5000000000001000001a1dd8681f2000001a1dd8681f2"
        + NONE
        + TAIL
        + HEAD
        + "015613e5000000000001000001",
    ),
    Pair(
        "five bytes behind",
        "p1",
        0,
        (),
        HEAD + "edf7241e000000000001000001a1dd8681f4000001a1dd8681f4" + NONE + TAIL + "0102030405",
    ),
    Pair(
        "magic 1",
        "p1",
        87,
        (),
        "000000000000000000000042ffffffff01be6abb9d000000000001000001a1dd8681f5000001a1dd8681f5"
        + NONE
        + TAIL,
    ),
    Pair(
        "magic 3",
        "p1",
        2,
        (),
        "000000000000000000000042ffffffff031951849b000000000001000001a1dd8681f7000001a1dd8681f7"
        + NONE
        + TAIL,
    ),
    Pair(
        "wrong CRC",
        "p1",
        2,
        (),
        HEAD + "00000001000000000001000001a1dd8681f9000001a1dd8681f9" + NONE + TAIL,
    ),
    Pair(
        "count of three",
        "p1",
        87,
        (),
        HEAD
        + "d29108c9000000000001000001a1dd8681fe000001a1dd8681fe"
        + NONE
        + "0000000310000000026b0276000e00000201027700",
    ),
    Pair(
        "no records",
        "p1",
        87,
        (),
        "000000000000000000000031ffffffff02b8d9bce20000ffffffff000001a1dd868208000001a1dd868208"
        + NONE
        + "00000000",
    ),
    Pair(
        "control batch",
        "p1",
        87,
        (),
        HEAD + "60f72a99002000000001000001a1dd86820b000001a1dd86820b" + NONE + TAIL,
    ),
    Pair(
        "transactional",
        "p1",
        53,
        (),
        HEAD
        + "ba63b68d001000000001000001a1dd86820f000001a1dd86820f0000000000000005000000000000"
        + TAIL,
    ),
    Pair(
        "producer without sequence",
        "p1",
        87,
        (),
        HEAD
        + "9583048c000000000001000001a1dd868210000001a1dd86821000000000000000050000ffffffff"
        + TAIL,
    ),
    Pair(
        "LogAppendTime bit on CreateTime",
        "p1",
        0,
        (),
        HEAD + "a0081161000800000001000001a1dd868213000001a1dd868213" + NONE + TAIL,
    ),
    Pair(
        "LogAppendTime bit on LogAppendTime",
        "lat",
        32,
        (0, 1),
        HEAD + "eb92199c000800000001000001a1dd868217000001a1dd868217" + NONE + TAIL,
    ),
    Pair(
        "plain on LogAppendTime",
        "lat",
        0,
        (),
        HEAD + "fdca5413000000000001000001a1dd86822a000001a1dd86822a" + NONE + TAIL,
    ),
    Pair(
        "two hours ahead",
        "p1",
        32,
        (0, 1),
        HEAD + "ceff9d4f000000000001000001a1ddf45ed7000001a1ddf45ed7" + NONE + TAIL,
    ),
    Pair("timestamp -1", "p1", 0, (), HEAD + "dc8cb9bb000000000001" + NONE + NONE + "ffff" + TAIL),
    Pair(
        "null key on compacted",
        "cmp",
        87,
        (1,),
        HEAD + "34dc84f1000000000001000001a1dd868240000001a1dd868240" + NONE + TAIL,
    ),
    Pair(
        "max timestamp too small",
        "p1",
        0,
        (),
        HEAD + "8a337e5b000000000001000001a1dd866e4f000001a1dd84fb38" + NONE + TAIL,
    ),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_every_recorded_batch_gets_the_code_that_kafka_gave(pair: Pair) -> None:
    sent = memoryview(bytes.fromhex(pair.sent))
    result = inspect(sent, RULES[pair.topic])
    if is_transactional(sent):
        # The whole request is refused for this; the batch alone is good.
        assert isinstance(result, AcceptedBatch)
        assert result.transactional
        assert pair.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif pair.code:
        assert isinstance(result, RejectedBatch)
        assert result.code == pair.code
        assert tuple(index for index, _ in result.record_errors) == pair.bad
    else:
        assert isinstance(result, AcceptedBatch)
        assert len(result.data) == 78
        assert (result.record_count, result.offset_count) == (2, 2)
        assert parse_header(result.data).crc == batch_crc(result.data)


def named(name: str) -> AcceptedBatch:
    pair = next(pair for pair in PAIRS if pair.name == name)
    result = inspect(memoryview(bytes.fromhex(pair.sent)), RULES[pair.topic])
    assert isinstance(result, AcceptedBatch)
    return result


def test_a_max_timestamp_that_the_records_contradict_is_put_right() -> None:
    result = named("max timestamp too small")
    header = parse_header(result.data)
    assert header.max_timestamp_ms == header.base_timestamp_ms == result.max_timestamp_ms


def test_a_log_append_time_bit_on_a_create_time_topic_is_cleared() -> None:
    assert parse_header(named("LogAppendTime bit on CreateTime").data).attributes == 0


def test_a_log_append_time_topic_stamps_the_batch() -> None:
    result = named("plain on LogAppendTime")
    header = parse_header(result.data)
    assert (header.attributes, header.max_timestamp_ms) == (8, NOW_MS)
    assert header.base_timestamp_ms == 1_794_717_942_314
    assert result.append_time_ms == result.min_timestamp_ms == result.max_timestamp_ms == NOW_MS
