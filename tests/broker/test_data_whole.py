"""The data APIs on the real log: two brokers on the same stores, and requests of any shape."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.data_requests import (
    accepted,
    codes,
    fetch,
    produce,
    produced_rows,
    record_bytes,
    rows,
    sizes,
)
from tests.broker.data_stage import DataStage, batch, idempotent
from tests.broker.whole import call, finish, whole_broker
from tests.memory_cluster import MemoryCluster, run
from tests.profiles import examples

from lakelog.broker import fetch as fetch_api
from lakelog.broker import list_offsets
from lakelog.broker import produce as produce_api
from lakelog.broker.call import Broker, CloseConnection, Later, NoAnswer
from lakelog.records.columns import decode_columns
from lakelog.records.header import parse_header, split_batches
from lakelog.wire.codec import decode, encode
from lakelog.wire.messages.fetch import FetchRequest, FetchResponse
from lakelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from lakelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)


async def made(broker: Broker, name: str, partitions: int = 1) -> None:
    await broker.topics.create(name, partitions=partitions, replication_factor=1, configs={})


async def write(broker: Broker, *values: bytes, partition: int = 0) -> PartitionProduceResponse:
    request = produce(("t", [(partition, batch(*values))]))
    answer = await finish(await produce_api.handle(broker, call(broker, 9), request))
    (row,) = produced_rows(answer)
    return row


async def read(broker: Broker, request: FetchRequest, version: int = 12) -> FetchResponse:
    answer = await finish(await fetch_api.handle(broker, call(broker, version), request))
    assert isinstance(answer, FetchResponse)
    return answer


def values(response: FetchResponse, partition: int = 0) -> list[tuple[int, bytes]]:
    found = []
    for row in rows(response):
        if row.partition_index != partition:
            continue
        for one in split_batches(memoryview(record_bytes(row))):
            columns = decode_columns(one, decompressed_bytes_max=1 << 20)
            base = parse_header(one).base_offset
            for at in range(len(columns)):
                offset = base + int(columns.offset_deltas[at])
                found.append((offset, bytes(columns.value(at) or b"")))
    return found


def test_what_one_broker_acknowledged_is_read_from_the_other_at_once() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster, 1) as first, whole_broker(cluster, 2) as second:
            await made(first, "t")
            for number in range(30):
                value = b"%d" % number
                writer, reader = (first, second) if number % 2 else (second, first)
                row = await write(writer, value)
                assert (row.error_code, row.base_offset) == (0, number)
                # No waiting: an empty answer would break read-your-writes (L7).
                assert values(await read(reader, fetch(("t", [(0, number)])))) == [(number, value)]

    run(scenario)


def test_the_end_asked_of_another_broker_holds_what_was_acknowledged() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster, 1) as first, whole_broker(cluster, 2) as second:
            await made(first, "t")
            for number in range(1, 10):
                await write(first, b"x")
                topic = ListOffsetsTopic("t", (ListOffsetsPartition(0, -1, -1),))
                answer = await list_offsets.handle(
                    second, call(second, 7), ListOffsetsRequest(topics=(topic,))
                )
                assert answer.topics[0].partitions[0].offset == number

    run(scenario)


def test_a_reader_parked_at_one_broker_is_woken_by_a_write_at_the_other() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster, 1) as first, whole_broker(cluster, 2) as second:
            await made(first, "t", 3)
            request = fetch(("t", [(0, 0), (1, 0), (2, 0)]), wait_ms=20_000)
            reading = asyncio.create_task(read(second, request))
            await asyncio.sleep(0.01)
            assert not reading.done()
            await write(first, b"hello", partition=2)
            assert values(await reading, 2) == [(0, b"hello")]

    run(scenario)


def test_a_retry_at_another_broker_is_still_a_duplicate() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster, 1) as first, whole_broker(cluster, 2) as second:
            await made(first, "t")
            producer = await second.cluster.producer_ids.next()
            request = produce(("t", [(0, idempotent(producer, 0, 0, b"once"))]))
            answers = [
                await finish(await produce_api.handle(broker, call(broker, 9), request))
                for broker in (first, second, first)
            ]
            assert [produced_rows(one)[0].base_offset for one in answers] == [0, 0, 0]
            assert [produced_rows(one)[0].error_code for one in answers] == [0, 0, 0]
            assert values(await read(second, fetch(("t", [(0, 0)])))) == [(0, b"once")]

    run(scenario)


def test_pipelined_requests_keep_their_order_whatever_finishes_first() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster) as broker:
            await made(broker, "t", 2)
            waiting = []
            for number in range(100):
                request = produce(("t", [(number % 2, batch(b"%d" % number))]))
                waiting.append(await produce_api.handle(broker, call(broker, 9), request))
            assert all(isinstance(one, Later) for one in waiting)
            for later in reversed(waiting):
                await finish(later)
            for partition in (0, 1):
                found = values(await read(broker, fetch(("t", [(partition, 0)]))), partition)
                assert found == [(n, b"%d" % (2 * n + partition)) for n in range(50)]

    run(scenario)


def test_a_deleted_topic_is_unknown_and_made_again_begins_at_0() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster) as broker:
            await made(broker, "t")
            await write(broker, b"old")
            topic = broker.topics.cached("t")
            assert topic is not None
            parked = asyncio.create_task(read(broker, fetch(("t", [(0, 1)]), wait_ms=20_000)))
            await asyncio.sleep(0.01)
            await broker.topics.delete(topic)
            assert codes(await parked) == [3]
            assert (await write(broker, b"gone")).error_code == 3
            await made(broker, "t")
            assert (await write(broker, b"new")).base_offset == 0
            assert values(await read(broker, fetch(("t", [(0, 0)])))) == [(0, b"new")]

    run(scenario)


def test_several_domains_serve_one_request() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster, domains=3) as broker:
            await made(broker, "t", 12)
            parts = [(number, batch(b"%d" % number)) for number in range(12)]
            answer = await finish(
                await produce_api.handle(broker, call(broker, 9), produce(("t", parts)))
            )
            assert {row.error_code for row in produced_rows(answer)} == {0}
            response = await read(broker, fetch(("t", [(number, 0) for number in range(12)])))
            for number in range(12):
                assert values(response, number) == [(0, b"%d" % number)]

    run(scenario)


small = st.integers(-2, 4)
numbers = st.one_of(small, st.sampled_from([-(2**31), 2**31 - 1]))
longs = st.one_of(small, st.sampled_from([-(2**63), 2**63 - 1]))
topics = st.sampled_from(["t", "u", "", "bad name!", "x" * 300])


@settings(max_examples=examples(150), deadline=None)
@given(
    wants=st.lists(st.tuples(topics, st.lists(st.tuples(numbers, longs), max_size=4)), max_size=4),
    session=st.tuples(numbers, numbers),
    limits=st.tuples(numbers, numbers, numbers),
    epoch=numbers,
    version=st.integers(4, 18),
    isolation=st.integers(-128, 127),
)
def test_any_fetch_gets_an_answer_that_can_be_sent(
    wants: list[tuple[str, list[tuple[int, int]]]],
    session: tuple[int, int],
    limits: tuple[int, int, int],
    epoch: int,
    version: int,
    isolation: int,
) -> None:
    stage = DataStage()
    stage.topic("t", 2)
    stage.topic("u")
    stage.log._commit([1], [accepted(batch(b"a", b"b"))])
    request = fetch(
        *wants,
        min_bytes=limits[0],
        max_bytes=limits[1],
        partition_bytes=limits[2],
        session=session,
        epoch=epoch,
        isolation=isolation,
    )

    async def ask() -> FetchResponse:
        answer = await finish(await fetch_api.handle(stage.broker, stage.call(version), request))
        assert isinstance(answer, FetchResponse)
        return answer

    answer = asyncio.run(ask())
    sent = b"".join(bytes(part) for part in encode(answer, version))
    again, _ = decode(FetchResponse, version, memoryview(sent))
    assert codes(again) == codes(answer)
    assert sum(size > 0 for size in sizes(answer)) <= 2


@settings(max_examples=examples(150), deadline=None)
@given(
    parts=st.lists(
        st.tuples(topics, st.lists(st.tuples(numbers, st.integers(0, 9)), max_size=4)), max_size=4
    ),
    acks=st.integers(-2, 2),
    version=st.integers(3, 13),
    flips=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=4),
)
def test_any_produce_gets_an_answer_that_can_be_sent_or_the_end_of_the_connection(
    parts: list[tuple[str, list[tuple[int, int]]]],
    acks: int,
    version: int,
    flips: list[tuple[int, int]],
) -> None:
    stage = DataStage()
    stage.topic("t", 2)
    stage.topic("u")
    damaged = bytearray(batch(b"abc", b"def"))
    for at, value in flips:
        damaged[at % len(damaged)] = value
    choices = [None, memoryview(b""), memoryview(damaged), memoryview(damaged)[:40], batch(b"x")]
    request = produce(
        *((name, [(at, choices[which % 5]) for at, which in some]) for name, some in parts),
        acks=acks,
    )

    async def ask(asked: ProduceRequest) -> None:
        try:
            answer = await finish(
                await produce_api.handle(stage.broker, stage.call(version), asked)
            )
        except CloseConnection:
            assert acks == 0
            return
        if acks == 0:
            assert isinstance(answer, NoAnswer)
            return
        assert isinstance(answer, ProduceResponse)
        assert encode(answer, version)
        for topic, (_, some) in zip(answer.responses, parts, strict=True):
            assert [row.index for row in topic.partition_responses] == [at for at, _ in some]

    asyncio.run(ask(request))
