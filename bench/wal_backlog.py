"""A backlog for compaction: WAL objects of many streams in a local directory, and their tasks.

Rows are JSON of about 213 bytes, lz4, as an application would send them. Content is seeded.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.model.ids import DomainId, StreamId, WalId
from lakelog.objects.local import LocalObjectStore
from lakelog.pipeline.files.file_task import FileTask, WalInputs, WalPiece
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec
from lakelog.streams.objects import FileKind
from lakelog.wal.layout import Chunk, encode, object_key

ZONE = "bench"
BATCH_ROWS = 500
ROW_BYTES = 219
"""Key and value of a row, on the average."""
FIRST_MS = 1_700_000_000_000


async def open_objects(folder: Path) -> LocalObjectStore:
    """Return the store of a folder."""
    return await LocalObjectStore.open(folder / "objects", SystemClock(), SystemEntropy())


def json_rows(count: int, seed: int) -> Iterator[bytes]:
    """Yield rows of about 213 bytes that compress like an application's."""
    source = random.Random(seed)
    actions = ("click", "view", "buy", "scroll")
    for number in range(count):
        yield json.dumps(
            {
                "id": number,
                "user": f"user-{source.randrange(1_000_000)}",
                "action": source.choice(actions),
                "amount": round(source.random() * 1_000, 2),
                "at_ms": FIRST_MS + number,
                "session": f"{source.getrandbits(64):016x}",
                "page": f"/products/{source.randrange(10_000)}/reviews?sort=newest",
                "note": "seen on the front page",
            }
        ).encode()


def batches_of(count: int, seed: int, codec: Codec = Codec.LZ4) -> list[bytes]:
    """Return so many batches, all different, with base offset 0."""
    made = []
    rows = json_rows(count * BATCH_ROWS, seed)
    for _ in range(count):
        records = [
            Record(b"customer-%d" % (number % 997), next(rows), FIRST_MS + number, ())
            for number in range(BATCH_ROWS)
        ]
        made.append(build_batch(records, BatchOptions(codec=codec)))
    return made


async def fill(
    folder: Path, *, streams: int, rounds: int, batches_per_chunk: int, codec: Codec = Codec.LZ4
) -> list[FileTask]:
    """Put `rounds` objects, each with a chunk of every stream; a task covers a whole stream."""
    objects = await open_objects(folder)
    pool = batches_of(64, seed=7, codec=codec)
    pieces: dict[int, list[WalPiece]] = {stream: [] for stream in range(1, streams + 1)}
    taken = 0
    for number in range(rounds):
        wal_id = WalId((FIRST_MS + number).to_bytes(6, "big") + number.to_bytes(10, "big"))
        chunks = []
        for stream in pieces:
            some = tuple(
                memoryview(pool[(taken + at) % len(pool)]) for at in range(batches_per_chunk)
            )
            taken += batches_per_chunk
            chunks.append(
                Chunk(
                    stream_id=StreamId(stream),
                    batches=some,
                    record_count=BATCH_ROWS * batches_per_chunk,
                    min_timestamp_ms=FIRST_MS,
                    max_timestamp_ms=FIRST_MS + BATCH_ROWS,
                )
            )
        encoded = encode(wal_id, DomainId(0), FIRST_MS + number, chunks)
        await objects.put(object_key(ZONE, DomainId(0), wal_id), list(encoded.parts))
        rows = BATCH_ROWS * batches_per_chunk
        for place in encoded.places:
            pieces[place.stream_id].append(
                WalPiece(
                    ZONE,
                    bytes(wal_id),
                    place.start,
                    place.end - place.start,
                    number * rows,
                    (number + 1) * rows,
                )
            )
    await objects.close()
    return [task_of(stream, tuple(found)) for stream, found in pieces.items()]


def task_of(stream: int, pieces: tuple[WalPiece, ...]) -> FileTask:
    """Return the task that makes one file of these pieces."""
    return FileTask(
        task_id=f"{stream}-1",
        attempt="bench",
        stream=stream,
        topic_id=bytes(16),
        topic="bench",
        partition=stream - 1,
        start=pieces[0].start,
        end=pieces[-1].end,
        inputs=WalInputs(0, pieces),
        output=FileKind.PARQUET,
        key=f"compaction/v1/topic=bench/partition={stream - 1}/{stream}-1-1-bench.parquet",
    )


def payload_bytes(task: FileTask) -> int:
    """Return the bytes of keys and values that a task covers, about."""
    return (task.end - task.start) * ROW_BYTES
