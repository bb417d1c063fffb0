"""Real processes: what a broker says that was stopped while another went on (E1, rule 16)."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.broker import HOST, Launch, ProcessBroker, free_ports
from tests.broker.data_stage import batch

from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.dialing import dial
from lakelog.server.options import Address
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lakelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lakelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lakelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ROUNDS = 5


@contextmanager
def broker(data: Path, number: int) -> Iterator[tuple[ProcessBroker, Address]]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "lakelog.cli.main", "serve", "--data", str(data)]
    own = ["--listen", f"{HOST}:{port}", "--broker-id", str(number)]
    launched = ProcessBroker(
        Launch(f"broker {number}", [*command, *own], port, data.with_name(f"{number}.log"))
    )
    try:
        launched.wait_ready()
        yield launched, Address(HOST, port)
    finally:
        os.kill(launched.pid, signal.SIGCONT)
        launched.stop()


async def write(client: BrokerConnection, topic_id: bytes, partition: int) -> None:
    data = PartitionProduceData(partition, batch(b"x"))
    topic = TopicProduceData(name="t", topic_id=topic_id, partition_data=(data,))
    answer = await client.call(
        ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(topic,)), ProduceResponse
    )
    assert answer.responses[0].partition_responses[0].error_code == 0


def both(topic_id: bytes) -> FetchRequest:
    """Everything of both partitions, in one request that stands alone."""
    partitions = tuple(
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
        for number in range(2)
    )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=(FetchTopic(topic="t", topic_id=topic_id, partitions=partitions),),
    )


async def told_after_a_stop(
    ahead: BrokerConnection, behind: BrokerConnection, stopped: ProcessBroker
) -> list[int]:
    """The ends of both partitions of a new topic, as a broker tells them that did not hear them."""
    made = await ahead.call(
        CreateTopicsRequest((CreatableTopic(f"t{os.urandom(4).hex()}", 2, 1),)),
        CreateTopicsResponse,
    )
    topic_id = made.topics[0].topic_id
    await write(ahead, topic_id, 0)
    known = ListOffsetsTopic(made.topics[0].name, (ListOffsetsPartition(0, -1, -1),))
    latest = await behind.call(ListOffsetsRequest(topics=(known,)), ListOffsetsResponse)
    assert latest.topics[0].partitions[0].offset == 1
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        await write(ahead, topic_id, 1)
        asked = asyncio.create_task(behind.call(both(topic_id), FetchResponse))
        for _ in range(10):
            await asyncio.sleep(0)  # the request lies in the stopped broker's socket
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    answer = await asked
    return [row.high_watermark for row in answer.responses[0].partitions]


@pytest.mark.proof
def test_a_broker_that_was_stopped_calls_no_partition_empty_that_is_not(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def ask(first: Address, second: Address, stopped: ProcessBroker) -> list[list[int]]:
        async with await dial(str(first)) as ahead, await dial(str(second)) as behind:
            return [await told_after_a_stop(ahead, behind, stopped) for _ in range(ROUNDS)]

    with broker(data, 1) as (_, first), broker(data, 2) as (stopped, second):
        assert asyncio.run(ask(first, second, stopped)) == [[1, 1]] * ROUNDS
