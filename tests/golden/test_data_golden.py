"""Recorded requests to a Kafka 4.1.1 broker, replayed; our answers are compared byte by byte.

`data.jsonl` holds the pairs of Produce, Fetch, ListOffsets, DeleteRecords, InitProducerId,
OffsetForLeaderEpoch and DescribeProducers, in the order they were recorded: later ones ask about
what earlier ones wrote. What differs from run to run, and what Lakelog answers otherwise on
purpose, is levelled by `levelled` or listed in `OTHERWISE`, each with its reason; nothing else
may differ.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from tests.broker.whole import call, finish, whole_broker
from tests.memory_cluster import MemoryCluster, run

from lakelog.broker.api import dispatch
from lakelog.broker.call import Broker
from lakelog.clock import SystemClock
from lakelog.wire.apis import APIS
from lakelog.wire.framing import decode_response, encode_response, parse_request_header
from lakelog.wire.messages.fetch import FetchResponse
from lakelog.wire.messages.init_producer_id import InitProducerIdResponse
from lakelog.wire.messages.produce import PartitionProduceResponse, ProduceResponse

RECORDED_MS = 1_794_717_942_330
"""When it was recorded: the bounds on timestamps depend on it."""

RECORDED_TOPIC = bytes.fromhex("5699e479494f4b9f94573dea79c50ba1")
"""The id of the topic that the recorded fetches read."""

PRODUCERS_EXPIRED_MAX = 1_000
"""Row 22 lets an unknown producer begin anywhere. For us that holds for ids whose state may have
expired (rule 22); the recorded ones are made such."""

OTHERWISE: dict[int, tuple[str, Struct]] = {
    129: (
        "Kafka's coordinator was still loading; ours has nothing to load",
        InitProducerIdResponse(producer_id=0, producer_epoch=0),
    ),
    130: (
        "likewise; an id and epoch in the request get a new id",
        InitProducerIdResponse(producer_id=1, producer_epoch=0),
    ),
    133: (
        "transactions are refused by 53, which every client takes for final (row 64)",
        InitProducerIdResponse(error_code=53, producer_id=-1, producer_epoch=-1),
    ),
}
"""By the number of the pair: why our answer is another, and what it is."""


class RecordedClock(SystemClock):
    """Time as it was then; durations are real."""

    def now_ms(self) -> int:
        return RECORDED_MS


@dataclass(frozen=True)
class Pair:
    """A request and what Kafka answered."""

    script: str
    line: int
    key: int
    version: int
    request: bytes
    response: bytes


def pairs() -> list[Pair]:
    path = Path(__file__).with_name("data.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        Pair(
            row["script"],
            row["line"],
            row["key"],
            row["version"],
            bytes.fromhex(row["request"]),
            bytes.fromhex(row["response"]),
        )
        for row in rows
    ]


async def prepared(broker: Broker) -> bytes:
    """Make the topics that the scripts made; the id of the one that is fetched by id."""
    await broker.topics.create("p1", partitions=1, replication_factor=1, configs={})
    await broker.topics.create(
        "lat",
        partitions=1,
        replication_factor=1,
        configs={"message.timestamp.type": "LogAppendTime"},
    )
    await broker.topics.create(
        "cmp", partitions=1, replication_factor=1, configs={"cleanup.policy": "compact"}
    )
    fetched = await broker.topics.create("nope", partitions=1, replication_factor=1, configs={})
    for replica in broker.log.replicas:
        replica.state.producers.expired_max = PRODUCERS_EXPIRED_MAX
    broker.cluster.producer_ids.known_end = PRODUCERS_EXPIRED_MAX + 1
    return fetched.id


async def replayed(broker: Broker, pair: Pair, topic_id: bytes) -> bytes:
    """Our answer to a recorded request, as the bytes behind the frame's size."""
    frame = memoryview(pair.request.replace(RECORDED_TOPIC, topic_id))
    header = parse_request_header(frame)
    body = frame[header.body_start :]
    answer = await finish(await dispatch(broker, pair.key, call(broker, pair.version), body))
    assert isinstance(answer, Struct)
    return b"".join(encode_response(header, answer))[4:].replace(topic_id, RECORDED_TOPIC)


async def all_replayed(cluster: MemoryCluster) -> list[bytes]:
    async with whole_broker(cluster) as broker:
        topic_id = await prepared(broker)
        return [await replayed(broker, pair, topic_id) for pair in pairs()]


def levelled(pair: Pair, answer: bytes) -> Struct:
    """The answer without what may differ."""
    _, message = decode_response(APIS[pair.key].response, pair.version, memoryview(answer))
    if isinstance(message, FetchResponse):
        # Session ids are random; whether there is one is not.
        return replace(message, session_id=min(message.session_id, 1))
    if isinstance(message, ProduceResponse):
        return _produce_levelled(message)
    return message


def _produce_levelled(message: ProduceResponse) -> ProduceResponse:
    return replace(
        message,
        responses=tuple(
            replace(
                topic,
                partition_responses=tuple(
                    _partition_levelled(one, log_append_time=topic.name == "lat")
                    for one in topic.partition_responses
                ),
            )
            for topic in message.responses
        ),
    )


def _partition_levelled(
    one: PartitionProduceResponse, *, log_append_time: bool
) -> PartitionProduceResponse:
    if one.error_code == 0:
        # The broker's own time.
        return replace(one, log_append_time_ms=0) if log_append_time else one
    return replace(
        one,
        # Kafka gives the log start when its log refused a batch, and -1 when the request was
        # refused before; no client reads it. Ours is always -1.
        log_start_offset=-1,
        # The words are ours, and given where Kafka is silent.
        error_message=None,
        record_errors=tuple(
            replace(error, batch_index_error_message=None) for error in one.record_errors
        ),
    )


def as_bytes(pair: Pair, answer: bytes) -> bytes:
    """The levelled answer written again, so that nulls and empties count."""
    header = parse_request_header(memoryview(pair.request))
    return b"".join(encode_response(header, levelled(pair, answer)))


def test_answers_are_kafkas_except_where_it_is_said_why() -> None:
    recorded = pairs()
    answers = run(all_replayed, MemoryCluster(RecordedClock()))
    differing = {
        number: levelled(pair, ours)
        for number, (pair, ours) in enumerate(zip(recorded, answers, strict=True))
        if as_bytes(pair, ours) != as_bytes(pair, pair.response)
    }
    assert len(recorded) == 139
    assert differing == {number: answer for number, (_, answer) in OTHERWISE.items()}


def test_correlation_ids_and_response_headers_are_kafkas_byte_for_byte() -> None:
    answers = run(all_replayed, MemoryCluster(RecordedClock()))
    for pair, ours in zip(pairs(), answers, strict=True):
        assert ours[:5] == pair.response[:5]


def test_answers_that_nothing_was_levelled_in_are_equal_to_the_last_byte() -> None:
    answers = run(all_replayed, MemoryCluster(RecordedClock()))
    equal = sum(pair.response == ours for pair, ours in zip(pairs(), answers, strict=True))
    assert equal == 108
