"""Requests of the data APIs in few words, and the way to read their answers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from tests.broker.data_stage import DataStage, batch, topic_id
from tests.broker.whole import finish

from lakelog.broker import fetch as fetch_api
from lakelog.broker import produce as produce_api
from lakelog.broker.call import Answer, Later
from lakelog.broker.fetch_sessions import records_bytes
from lakelog.records.acceptance import AcceptedBatch, BatchRules, inspect
from lakelog.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from lakelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lakelog.wire.schema import RecordParts

ResultT = TypeVar("ResultT")
Wants = Sequence[tuple[int, int]]
Parts = Sequence[tuple[int, memoryview | None]]


@contextmanager
def nothing_left_running() -> Iterator[None]:
    """Fail when the block leaves a task behind."""
    before = asyncio.all_tasks()
    yield
    left = {task for task in asyncio.all_tasks() - before if not task.done()}
    assert not left, left


def run(work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Run something in a loop of its own, and see that it leaves no task behind."""

    async def main() -> ResultT:
        with nothing_left_running():
            return await work()

    return asyncio.run(main())


def accepted(data: memoryview) -> AcceptedBatch:
    made = inspect(data, BatchRules(now_ms=1_794_717_942_000, produce_version=9))
    assert isinstance(made, AcceptedBatch), made
    return made


def commit(stage: DataStage, stream: int, *values: bytes) -> int:
    """Commit a batch and say how large it is."""
    data = batch(*values)
    stage.log._commit([stream], [accepted(data)])
    return len(data)


def produce(*topics: tuple[str, Parts], acks: int = -1, timeout_ms: int = 5_000) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=tuple(
            TopicProduceData(
                name=name,
                topic_id=topic_id(name),
                partition_data=tuple(PartitionProduceData(index, data) for index, data in parts),
            )
            for name, parts in topics
        ),
    )


def produced_rows(answer: Answer) -> list[PartitionProduceResponse]:
    assert isinstance(answer, ProduceResponse), answer
    return [row for topic in answer.responses for row in topic.partition_responses]


def produced(
    stage: DataStage, request: ProduceRequest, version: int = 9
) -> list[PartitionProduceResponse]:
    async def ask() -> Answer:
        return await finish(await produce_api.handle(stage.broker, stage.call(version), request))

    return produced_rows(run(ask))


def produced_codes(rows: list[PartitionProduceResponse]) -> list[int]:
    return [row.error_code for row in rows]


def fetch(
    *topics: tuple[str, Wants],
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_bytes: int = 1 << 20,
    epoch: int = -1,
    session: tuple[int, int] = (0, -1),
    isolation: int = 0,
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=tuple(
            FetchTopic(
                topic=name,
                topic_id=topic_id(name),
                partitions=tuple(
                    FetchPartition(
                        partition=partition,
                        current_leader_epoch=epoch,
                        fetch_offset=offset,
                        partition_max_bytes=partition_bytes,
                    )
                    for partition, offset in wants
                ),
            )
            for name, wants in topics
        ),
    )


async def fetch_finished(answer: Answer | Later) -> FetchResponse:
    """The answer of a fetch, parked or not."""
    done = await finish(answer)
    assert isinstance(done, FetchResponse), done
    return done


async def fetching(stage: DataStage, request: FetchRequest, version: int = 12) -> FetchResponse:
    return await fetch_finished(await fetch_api.handle(stage.broker, stage.call(version), request))


def fetched(stage: DataStage, request: FetchRequest, version: int = 12) -> FetchResponse:
    return run(lambda: fetching(stage, request, version))


def rows(response: FetchResponse) -> list[FetchPartitionData]:
    return [row for topic in response.responses for row in topic.partitions]


def one(response: FetchResponse) -> FetchPartitionData:
    (row,) = rows(response)
    return row


def codes(response: FetchResponse) -> list[int]:
    return [row.error_code for row in rows(response)]


def sizes(response: FetchResponse) -> list[int]:
    return [records_bytes(row) for row in rows(response)]


def record_bytes(row: FetchPartitionData) -> bytes:
    records = row.records
    assert records is not None
    return b"".join(records.parts) if isinstance(records, RecordParts) else bytes(records)
