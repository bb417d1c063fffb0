"""Reading many streams with small answers: nothing is read twice, and every byte is served."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.memory_cluster import QUICK, TOPIC, MemoryCluster, MemoryNode, batch, run

from lakelog.clock import SystemClock
from lakelog.log import plan
from lakelog.log.values import Fetched, ReadStatus, StreamRead
from lakelog.log.wal_source import WHOLE_OBJECT_AGE_MS
from lakelog.model.ids import ByteRange
from lakelog.objects.memory import MemoryObjectStore
from lakelog.records.header import parse_header, split_batches

STREAMS = list(range(1, 17))
OBJECTS = 24
VALUE = bytes(1000)


class LaterClock(SystemClock):
    """A clock that can be put forward, so that objects are no longer fresh."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class CountedObjects(MemoryObjectStore):
    """Counts what is read of it."""

    read_bytes = 0

    async def get(self, key: str) -> memoryview:
        data = await super().get(key)
        self.read_bytes += len(data)
        return data

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        self.read_bytes += sum(len(span) for span in ranges)
        return await super().get_ranges(key, ranges)


async def written(cluster: MemoryCluster) -> tuple[MemoryNode, MemoryNode]:
    """The broker that wrote every object, and another that has none of it in memory."""
    writer = await cluster.node("broker-1")
    small = replace(QUICK, read_cache_bytes=200_000, read_ahead_bytes=8_000)
    reader = await cluster.node("broker-2", small)
    await writer.log.create_streams(TOPIC, first_partition=0, streams=STREAMS)
    for _ in range(OBJECTS):
        await writer.log.append(STREAMS, [batch(VALUE)] * 16, deadline_s=cluster.soon())
    now_s = cluster.clock.monotonic_s()
    await reader.log.prove([1], arrived_s=now_s, deadline_s=cluster.soon())
    return writer, reader


async def drained(
    cluster: MemoryCluster, node: MemoryNode, *, stream_bytes: int, answer_bytes: int
) -> dict[int, bytes]:
    """Read all streams to their end as clients do: who was served goes to the end of the line."""
    served = dict.fromkeys(STREAMS, b"")
    offsets = dict.fromkeys(STREAMS, 0)
    line = list(STREAMS)
    while line:
        wanted = [StreamRead(stream, offsets[stream], stream_bytes) for stream in line]
        answers = await node.log.read(wanted, bytes_max=answer_bytes, deadline_s=cluster.soon())
        assert sum(answer.size_bytes for answer in answers) <= max(answer_bytes, 1_200)
        assert answers[0].size_bytes, "who is first is served"
        for stream, answer in zip(list(line), answers, strict=True):
            assert (answer.status, answer.head) == (ReadStatus.OK, OBJECTS)
            if answer.size_bytes:
                served[stream] += b"".join(answer.parts)
                offsets[stream] = next_offset(answer)
                line.remove(stream)
                line += [stream] if offsets[stream] < OBJECTS else []
    return served


def next_offset(answer: Fetched) -> int:
    batches = split_batches(memoryview(b"".join(answer.parts)))
    return parse_header(batches[-1]).base_offset + 1


@pytest.mark.parametrize("is_fresh", [True, False])
@pytest.mark.parametrize(
    ("stream_bytes", "answer_bytes"),
    [(2_500, 1), (2_500, 5_000), (4_000, 9_000), (1 << 20, 9_000), (2_500, 1 << 20)],
)
def test_small_answers_serve_every_byte_and_read_it_once(
    is_fresh: bool, stream_bytes: int, answer_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "GAP_BYTES_MAX", 1)  # what lies between two ranges counts too
    clock = LaterClock()

    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = objects = CountedObjects(clock)
        writer, reader = await written(cluster)
        clock.ahead_ms = 0 if is_fresh else WHOLE_OBJECT_AGE_MS
        objects.read_bytes = 0
        served = await drained(
            cluster, reader, stream_bytes=stream_bytes, answer_bytes=answer_bytes
        )
        assert objects.read_bytes < 1.1 * sum(map(len, served.values()))
        at_once = await writer.log.read(
            [StreamRead(stream, 0, 1 << 20) for stream in STREAMS],
            bytes_max=1 << 30,
            deadline_s=cluster.soon(),
        )
        for stream, answer in zip(STREAMS, at_once, strict=True):
            assert served[stream] == b"".join(answer.parts)

    run(scenario, MemoryCluster(clock))


def test_an_answer_ends_where_a_batch_finds_no_room() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        _, reader = await written(cluster)
        size = len(VALUE) + 100
        wanted = [StreamRead(stream, 0, size) for stream in STREAMS]
        answers = await reader.log.read(wanted, bytes_max=3 * size - 200, deadline_s=cluster.soon())
        assert [bool(answer.size_bytes) for answer in answers] == [True] * 2 + [False] * 14
        assert {(answer.status, answer.head) for answer in answers} == {(ReadStatus.OK, OBJECTS)}
        unknown = [StreamRead(99, 0, size), StreamRead(1, OBJECTS + 1, size)]
        answers = await reader.log.read(
            [*wanted, *unknown], bytes_max=size, deadline_s=cluster.soon()
        )
        assert [answer.status for answer in answers[-2:]] == [
            ReadStatus.UNKNOWN_STREAM,
            ReadStatus.OUT_OF_RANGE,
        ]

    run(scenario)
