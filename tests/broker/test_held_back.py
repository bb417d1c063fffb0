"""Two brokers on the same stores, one of which has not heard what the other did (E1, rule 16)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.broker.data_requests import codes, fetch, produce, produced_rows, rows, sizes
from tests.broker.data_stage import batch, idempotent
from tests.broker.whole import call, finish, whole_broker
from tests.memory_cluster import MemoryCluster, run

from lakelog.broker import (
    delete_records,
    describe_producers,
    list_offsets,
    offset_for_leader_epoch,
)
from lakelog.broker import fetch as fetch_api
from lakelog.broker import produce as produce_api
from lakelog.broker.call import Broker
from lakelog.meta.port import KeyValue, LogPage, MetadataLog, MetadataStore, Session
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Unavailable
from lakelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from lakelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
)
from lakelog.wire.messages.fetch import FetchRequest, FetchResponse
from lakelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from lakelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


class Pause:
    """Whether a broker hears of what others write; its own questions are always answered."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self.heard.set()
        self.reads = 0


class PausedLog:
    """A log that does not wake who waits for news while it is paused."""

    def __init__(self, inner: MetadataLog, pause: Pause) -> None:
        self._inner = inner
        self._pause = pause

    async def append(self, record: bytes) -> int:
        return await self._inner.append(record)

    async def read(self, *, after: int) -> LogPage:
        self._pause.reads += 1
        return await self._inner.read(after=after)

    async def wait(self, *, after: int, timeout_s: float) -> None:
        await self._inner.wait(after=after, timeout_s=timeout_s)
        await self._pause.heard.wait()

    async def trim(self, *, before: int) -> None:
        await self._inner.trim(before=before)


class PausedStore:
    """A metadata store whose logs can be paused."""

    def __init__(self, inner: MetadataStore, pause: Pause) -> None:
        self._inner = inner
        self._pause = pause

    async def get(self, key: str) -> KeyValue | None:
        return await self._inner.get(key)

    async def range(self, prefix: str) -> list[KeyValue]:
        return await self._inner.range(prefix)

    async def put(
        self,
        key: str,
        value: bytes | None,
        *,
        expect: int | None = None,
        session: Session | None = None,
    ) -> int:
        return await self._inner.put(key, value, expect=expect, session=session)

    def log(self, name: str) -> MetadataLog:
        return PausedLog(self._inner.log(name), self._pause)

    async def session(self, *, ttl_s: float, keep_s: float = 0.0) -> Session:
        return await self._inner.session(ttl_s=ttl_s, keep_s=keep_s)

    async def close(self) -> None:
        await self._inner.close()


@asynccontextmanager
async def two_brokers(cluster: MemoryCluster) -> AsyncIterator[tuple[Broker, Broker, Pause]]:
    """A broker that hears everything, one that can be paused, and a topic "t" of 2 partitions."""
    pause = Pause()
    paused = PausedStore(cluster.metadata, pause)
    held = MemoryCluster(cluster.clock, metadata=paused, objects=cluster.objects)
    async with whole_broker(cluster, 1) as ahead, whole_broker(held, 2) as behind:
        await ahead.topics.create("t", partitions=2, replication_factor=1, configs={})
        await behind.topics.current()
        yield ahead, behind, pause


async def write(broker: Broker, partition: int, data: memoryview | None = None) -> None:
    request = produce(("t", [(partition, data or batch(b"x"))]))
    answer = await finish(await produce_api.handle(broker, call(broker, 9), request))
    assert [row.error_code for row in produced_rows(answer)] == [0]


async def read(broker: Broker, request: FetchRequest) -> FetchResponse:
    answer = await finish(await fetch_api.handle(broker, call(broker, 12), request))
    assert isinstance(answer, FetchResponse)
    return answer


async def known_to(broker: Broker, pause: Pause) -> None:
    """Let the broker hear everything, then nothing more."""
    now_s = broker.clock.monotonic_s()
    await broker.log.prove_domains([0], arrived_s=now_s, deadline_s=now_s + 5)
    pause.heard.clear()
    for _ in range(10):
        await asyncio.sleep(0)


def test_an_empty_partition_beside_one_with_data_is_proved_to_be_empty() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with two_brokers(cluster) as (ahead, behind, pause):
            await write(ahead, 0)
            await known_to(behind, pause)
            await write(ahead, 1)
            answer = await read(behind, fetch(("t", [(0, 0), (1, 0)])))
            assert codes(answer) == [0, 0]
            assert [row.high_watermark for row in rows(answer)] == [1, 1]
            assert all(sizes(answer))
            pause.heard.set()

    run(scenario)


def test_an_incremental_answer_leaves_out_what_it_cannot_know_and_reads_no_log_for_it() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with two_brokers(cluster) as (ahead, behind, pause):
            await write(ahead, 0)
            number = (await read(behind, fetch(("t", [(0, 0)]), session=(0, 0)))).session_id
            assert number
            await write(ahead, 0)
            await known_to(behind, pause)
            await write(ahead, 1)
            reads = pause.reads
            answer = await read(behind, fetch(("t", [(0, 1), (1, 0)]), session=(number, 1)))
            assert [row.partition_index for row in rows(answer)] == [0]
            assert pause.reads == reads
            # With nothing else to say, "nothing has come" is a claim again.
            answer = await read(behind, fetch(("t", [(0, 2)]), session=(number, 2)))
            assert [row.partition_index for row in rows(answer)] == [1]
            assert all(sizes(answer))
            pause.heard.set()

    run(scenario)


def test_what_is_proved_by_a_broker_without_an_answer_from_the_store_is_not_claimed() -> None:
    """The data that is there is served; of the other partition nothing is said but "ask again"."""

    async def scenario(cluster: MemoryCluster) -> None:
        async with two_brokers(cluster) as (ahead, behind, pause):
            await write(ahead, 0)
            await known_to(behind, pause)
            await write(ahead, 1)

            async def silent(*, arrived_s: float) -> None:
                raise Unavailable(f"nothing proves {arrived_s}")

            behind.log.replicas[0].prove = silent  # type: ignore[method-assign]  # a silent store
            answer = await read(behind, fetch(("t", [(0, 0), (1, 0)])))
            assert codes(answer) == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
            assert [size > 0 for size in sizes(answer)] == [True, False]
            pause.heard.set()

    run(scenario)


def test_ends_and_producers_are_told_as_they_are_everywhere() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with two_brokers(cluster) as (ahead, behind, pause):
            await known_to(behind, pause)
            producer_id = await ahead.cluster.producer_ids.next()
            await write(ahead, 0, idempotent(producer_id, 0, 0, b"a"))
            producers = await describe_producers.handle(
                behind,
                call(behind, 0),
                DescribeProducersRequest((DescribeProducersTopicRequest("t", (0,)),)),
            )
            (partition,) = producers.topics[0].partitions
            seen = [producer.producer_id for producer in partition.active_producers]
            assert seen == [producer_id]

            await write(ahead, 0)
            ends = ListOffsetsTopic("t", (ListOffsetsPartition(0, -1, -1),))
            latest = await list_offsets.handle(
                behind, call(behind, 7), ListOffsetsRequest(topics=(ends,))
            )
            assert latest.topics[0].partitions[0].offset == 2

            await write(ahead, 0)
            epochs = OffsetForLeaderTopic("t", (OffsetForLeaderPartition(0, -1, 0),))
            found = await offset_for_leader_epoch.handle(
                behind, call(behind, 4), OffsetForLeaderEpochRequest(topics=(epochs,))
            )
            assert found.topics[0].partitions[0].end_offset == 3

            await write(ahead, 0)
            upto = DeleteRecordsTopic("t", (DeleteRecordsPartition(0, -1),))
            trimmed = await delete_records.handle(
                behind, call(behind, 2), DeleteRecordsRequest((upto,), 5_000)
            )
            assert trimmed.topics[0].partitions[0].low_watermark == 4
            pause.heard.set()

    run(scenario)
