"""What an executor does with a bin, tried in this process."""

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.files.wal_tasks import Bucket

from lakelog.pipeline.files.file_task import (
    FailureKind,
    FileFailure,
    FileResult,
)
from lakelog.pipeline.spark import executor_job
from lakelog.pipeline.spark.executor_job import (
    BinJob,
    OtherVersionError,
    StoreAddress,
    decode_answer,
    encode_bin,
    run_bin,
)
from lakelog.streams.objects import FileKind


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setattr(executor_job, "_runtimes", {})
    return Bucket(tmp_path)


def address_of(bucket: Bucket) -> StoreAddress:
    return StoreAddress(bucket.url, (), is_elsewhere=False)


def numbers(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(values, pa.int64())})


def close_runtimes() -> None:
    for runtime in executor_job._runtimes.values():
        runtime.close()


def test_each_row_of_the_range_runs_its_bin_and_each_task_is_a_row(bucket: Bucket) -> None:
    tasks = [bucket.task(number) for number in range(5)]
    bins = (
        encode_bin([(0, tasks[0]), (3, tasks[3])]),
        encode_bin([(1, tasks[1])]),
        encode_bin([(2, tasks[2]), (4, tasks[4])]),
    )
    job = pickle.loads(pickle.dumps(BinJob(address_of(bucket), bins)))
    rows = [row for batch in job(iter([numbers(2), numbers(0)])) for row in batch.to_pylist()]
    assert sorted(row["place"] for row in rows) == [0, 2, 3, 4]
    for row in rows:
        answer = decode_answer(row["answer"])
        task = tasks[row["place"]]
        assert isinstance(answer, FileResult)
        assert (answer.task_id, answer.key) == (task.task_id, task.key)
        assert pq.read_table(bucket.root / answer.key)["offset"].to_pylist() == [0, 1, 2]
    close_runtimes()


def test_what_is_wrong_with_one_task_is_its_answer_and_nobody_elses(bucket: Bucket) -> None:
    good, gone, bent, odd = (bucket.task(number) for number in range(4))
    bucket.source(gone).unlink()
    damaged = bytearray(bucket.source(bent).read_bytes())
    damaged[-1] ^= 1
    bucket.source(bent).write_bytes(damaged)
    odd = replace(odd, key="../outside")  # which is no key at all: as a bug would make it
    numbered = list(enumerate([good, gone, bent, odd]))
    answers = dict(run_bin(address_of(bucket), numbered))
    assert isinstance(answers[0], FileResult)
    troubles = [answers[place] for place in (1, 2, 3)]
    assert all(isinstance(one, FileFailure) for one in troubles)
    assert [getattr(one, "trouble", None) for one in troubles] == [
        FailureKind.MISSING,
        FailureKind.CORRUPT,
        FailureKind.UNAVAILABLE,
    ]
    assert str(bucket.source(bent)).endswith(getattr(troubles[1], "object_key", "?"))
    close_runtimes()


def test_large_tasks_run_alone_and_give_the_same_answers(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = list(enumerate(bucket.task(number, batches=number + 1) for number in range(4)))
    together = dict(run_bin(address_of(bucket), tasks))
    monkeypatch.setattr(executor_job, "SMALL_BYTES", 0)
    assert dict(run_bin(address_of(bucket), tasks)) == together
    close_runtimes()


def test_segments_are_made_too(bucket: Bucket) -> None:
    made = bucket.task(1, batches=2)
    task = replace(made, output=FileKind.SEGMENT, key="compaction/v1/1.segment", created_ms=5)
    ((_, answer),) = run_bin(address_of(bucket), [(0, task)])
    assert isinstance(answer, FileResult)
    assert (bucket.root / task.key).stat().st_size == answer.facts.size_bytes
    close_runtimes()


def test_a_store_that_cannot_be_opened_is_every_tasks_answer(bucket: Bucket) -> None:
    address = StoreAddress("gopher://hole", (), is_elsewhere=False)
    answers = run_bin(address, [(0, bucket.task(1)), (1, bucket.task(2))])
    assert [place for place, _ in answers] == [0, 1]
    for _, answer in answers:
        assert isinstance(answer, FileFailure)
        assert answer.trouble is FailureKind.UNAVAILABLE
        assert "gopher" in answer.reason


def test_an_executor_of_another_version_does_nothing(bucket: Bucket) -> None:
    job = BinJob(address_of(bucket), (encode_bin([(0, bucket.task(1))]),), version="0.0.0")
    with pytest.raises(OtherVersionError, match="install the same version"):
        list(job(iter([numbers(0)])))
    assert not (bucket.root / "compaction").exists()
