"""Tasks over WAL objects in a directory, without a broker: what an engine is given."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lakelog.model.ids import DomainId, WalId
from lakelog.pipeline.files.file_task import FileTask, WalInputs, WalPiece
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.streams.objects import FileKind
from lakelog.wal.layout import PREFIX, make_wal_id, object_key

TOPIC = bytes(range(16))


@dataclass
class Bucket:
    """A directory that is an object store, and what was put there."""

    root: Path
    count: int = 0
    batches: dict[int, bytes] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"file:{self.root}"

    def task(
        self, stream: int, *, records: int = 3, batches: int = 1, value: bytes = b"x" * 50
    ) -> FileTask:
        """A stream's task, its batches in one new object."""
        run = self._run(records, value)
        wal_id = self.put(run * batches)
        pieces = [
            WalPiece("z", bytes(wal_id), n * len(run), len(run), n * records, (n + 1) * records)
            for n in range(batches)
        ]
        return task_of(stream, pieces)

    def put(self, content: bytes) -> WalId:
        self.count += 1
        token = self.count.to_bytes(8, "big")
        wal_id = make_wal_id(1_700_000_000_000, b"\0\0" + token)
        path = self.path(wal_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return wal_id

    def path(self, wal_id: WalId | bytes) -> Path:
        return self.root / object_key("z", DomainId(0), WalId(bytes(wal_id)))

    def source(self, task: FileTask) -> Path:
        """The file that the task reads."""
        assert isinstance(task.inputs, WalInputs)
        return self.path(task.inputs.pieces[0].wal_id)

    def hold(self, task: FileTask) -> None:
        """From now on whoever opens the task's object waits, as for a store that hangs."""
        path = self.source(task)
        path.rename(path.with_suffix(".held"))
        os.mkfifo(path)

    def release(self, task: FileTask) -> None:
        """Who opens the object from now on finds it; those that wait go on waiting."""
        path = self.source(task)
        path.with_suffix(".held").replace(path)

    def _run(self, records: int, value: bytes) -> bytes:
        if records not in self.batches or not self.batches[records].endswith(value):
            rows = [Record(b"%d" % n, value, 1_000 + n) for n in range(records)]
            batch = build_batch(rows, BatchOptions())
            self.batches[records] = PREFIX.pack(len(batch)) + batch
        return self.batches[records]


def task_of(stream: int, pieces: Sequence[WalPiece], *, attempt: str = "a") -> FileTask:
    return FileTask(
        task_id=f"{stream}-1",
        attempt=attempt,
        stream=stream,
        topic_id=TOPIC,
        topic=f"t{stream % 3}",
        partition=stream,
        start=pieces[0].start,
        end=pieces[-1].end,
        inputs=WalInputs(0, tuple(pieces)),
        output=FileKind.PARQUET,
        key=f"compaction/v1/{stream}-{attempt}.parquet",
    )
