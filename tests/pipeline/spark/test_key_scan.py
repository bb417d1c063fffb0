"""The scan on a real Spark finds what the scan in this process finds."""

import asyncio
from dataclasses import replace

from tests.pipeline.maintenance.compacted_stream import RETENTION_MS, CompactedStream
from tests.pipeline.spark.conftest import Stage

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.config.stores import open_objects
from lakelog.pipeline.files.file_task import FailureKind, FileFailure
from lakelog.pipeline.maintenance.key_scan import scan
from lakelog.pipeline.spark.executor_job import StoreAddress
from lakelog.pipeline.spark.key_scan import SparkScanner


def scanner_of(stage: Stage) -> SparkScanner:
    return SparkScanner(stage.engine, StoreAddress(stage.bucket.url, (), is_elsewhere=False))


async def stream_in(stage: Stage, *, files: int) -> CompactedStream:
    """A stream in the bucket that Spark sees, with every kind of row."""
    objects = await open_objects(stage.bucket.url, {}, SystemClock(), SystemEntropy())
    folder = f"cleaning-{next(stage.streams)}"
    stream = CompactedStream(objects=objects, folder=folder)
    for number in range(files):
        records = [(b"k%d" % (at % (7 + number)), b"v") for at in range(number, number + 9)]
        await stream.append([*records, (None, b"x"), (b"", b"y"), (b"t%d" % number, None)], gap=1)
    return stream


def test_spark_keeps_the_rows_that_the_same_decision_keeps_here(stage: Stage) -> None:
    async def scenario() -> None:
        streams = [await stream_in(stage, files=files) for files in (5, 1, 3)]
        scanner = scanner_of(stage)
        plans = [stream.plan() for stream in streams]
        wanted = [plan for plan in plans if plan is not None]
        assert len(wanted) == 3
        due = [
            wanted[0],
            replace(wanted[1], tombstones_end=100),
            replace(wanted[2], tombstones_end=13),
        ]
        found = await scanner.scan(due)
        for stream, plan, answer in zip(streams, due, found, strict=True):
            here = await scan(stream.objects, plan)
            assert answer == here
            assert not isinstance(answer, FileFailure)
            assert any(one.kept_count < one.row_count for one in answer)
        assert await scanner.scan([]) == []

    asyncio.run(scenario())


def test_a_stream_lives_as_well_with_a_scan_on_spark(stage: Stage) -> None:
    async def scenario() -> None:
        stream = await stream_in(stage, files=3)
        stream.scanner = scanner_of(stage)
        for _ in range(2):
            await stream.append([(b"k1", b"new"), (b"k2", None)], gap=0)
            assert await stream.clean()
            await stream.check()
            stream.now_ms += RETENTION_MS
        assert any(one.byte_length for one in stream.entries)

    asyncio.run(scenario())


def test_a_file_that_cannot_be_read_stops_its_own_stream_alone(stage: Stage) -> None:
    async def scenario() -> None:
        streams = [await stream_in(stage, files=2) for _ in range(2)]
        plans = [plan for plan in (stream.plan() for stream in streams) if plan is not None]
        bad = plans[0].pieces[1]
        data = bytearray(await streams[0].objects.get(bad.key))
        data[20] ^= 1
        await streams[0].objects.put(bad.key, [data])
        damaged, fine = await scanner_of(stage).scan(plans)
        assert isinstance(damaged, FileFailure)
        assert (damaged.trouble, damaged.object_key) == (FailureKind.CORRUPT, bad.key)
        assert fine == await scan(streams[1].objects, plans[1])

    asyncio.run(scenario())


def test_a_store_that_is_not_there_is_an_answer(stage: Stage) -> None:
    async def scenario() -> None:
        stream = await stream_in(stage, files=1)
        plan = stream.plan()
        assert plan is not None
        nowhere = StoreAddress("gopher://x", (), is_elsewhere=False)
        (answer,) = await SparkScanner(stage.engine, nowhere).scan([plan])
        assert isinstance(answer, FileFailure)
        assert answer.trouble is FailureKind.UNAVAILABLE

    asyncio.run(scenario())
