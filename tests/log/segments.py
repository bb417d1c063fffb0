"""What turns entries of a log into segments, for tests: a task, its file, and the Swap."""

import msgspec
from tests.log.tables import accepted, swapped_in, wal_task
from tests.memory_cluster import QUICK, TOPIC, MemoryCluster, MemoryNode, batch
from tests.records.table_cases import hostile_batches

from lakelog.log.options import LogOptions
from lakelog.log.values import ReadStatus, StreamRead
from lakelog.pipeline.files.file_task import FileResult, FileTask
from lakelog.records.acceptance import AcceptedBatch
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec
from lakelog.records.header import CRC_OFFSET, batch_crc, parse_header, split_batches
from lakelog.streams.objects import FileKind

SMALL_PARTS = LogOptions(
    linger_ms=1, put_retry_ms=1, put_retry_max_ms=5, segment_part_bytes=500, read_ahead_bytes=1
)
INTERVAL = 300


async def created(cluster: MemoryCluster, *streams: int, options: LogOptions = QUICK) -> MemoryNode:
    node = await cluster.node(options=options)
    await node.log.create_streams(TOPIC, first_partition=0, streams=list(streams))
    return node


async def fill(
    cluster: MemoryCluster, node: MemoryNode, stream: int, count: int, *, each: int = 5
) -> None:
    """Append batches of a few records, each batch in an object of its own."""
    for number in range(count):
        values = [b"%d-%d" % (number, at) + bytes(50) for at in range(each)]
        sent = batch(*values, timestamp_ms=1000 + number * 10)
        await node.log.append([stream], [sent], deadline_s=cluster.soon())


def unreadable(codec: Codec = Codec.NONE, *, count: int = 3, stamp_ms: int = 5) -> AcceptedBatch:
    """A batch whose CRC is right and whose records cannot be read."""
    records = [Record(None, b"a" * 40, stamp_ms)] * count
    good = accepted(memoryview(build_batch(records, BatchOptions(codec=codec))))
    broken = bytearray(good.data)
    broken[61:75] = b"\x7f" * 14
    broken[CRC_OFFSET : CRC_OFFSET + 4] = batch_crc(memoryview(broken)).to_bytes(4, "big")
    return msgspec.structs.replace(good, data=memoryview(bytes(broken)))


async def fill_hostile(cluster: MemoryCluster, node: MemoryNode, stream: int) -> None:
    """Every codec, every bound of rule 11, and for every codec a batch that cannot be read."""
    for _, data in hostile_batches():
        await node.log.append([stream], [accepted(data)], deadline_s=cluster.soon())
    for codec in Codec:
        sent = [accepted(hostile_batches()[0][1]), unreadable(codec), batch(b"x")]
        await node.log.append([stream] * 3, sent, deadline_s=cluster.soon())


def segment_task(
    node: MemoryNode, stream: int, *, start: int = 0, end: int | None = None, **changes: int
) -> FileTask:
    """A segment's task over the stream's WAL entries that lie in [start, end)."""
    return wal_task(node, stream, FileKind.SEGMENT, start=start, end=end, **changes)


async def segmented(
    cluster: MemoryCluster,
    node: MemoryNode,
    stream: int,
    *,
    start: int = 0,
    end: int | None = None,
    **changes: int,
) -> FileResult:
    """Make a segment of WAL entries of the stream and swap it in."""
    task = segment_task(node, stream, start=start, end=end, **changes)
    return await swapped_in(cluster, node, task)


async def read_bytes(
    cluster: MemoryCluster,
    node: MemoryNode,
    stream: int,
    *,
    offset: int = 0,
    bytes_max: int = 1 << 20,
) -> list[bytes]:
    """The batches as a consumer gets them, from the offset to the end; every answer advances."""
    found: list[bytes] = []
    while True:
        wanted = [StreamRead(stream, offset, bytes_max)]
        (got,) = await node.log.read(wanted, bytes_max=bytes_max, deadline_s=cluster.soon())
        assert got.status is ReadStatus.OK, got
        data = memoryview(b"".join(bytes(part) for part in got.parts))
        batches = split_batches(data)
        assert sum(len(batch) for batch in batches) == len(data) == got.size_bytes
        if not batches:
            assert offset == got.head, (offset, got)
            return found
        last = parse_header(batches[-1])
        after = last.base_offset + last.last_offset_delta + 1
        assert after > offset
        found += [bytes(batch) for batch in batches]
        offset = after
