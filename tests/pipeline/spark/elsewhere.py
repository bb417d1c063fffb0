"""Engines of other kinds, one a process: `python -m tests.pipeline.spark.elsewhere KIND`.

A process has one Spark, so these cannot share that of the other tests. What happened is printed as
one line of JSON.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import pyspark
from tests.pipeline.files.wal_tasks import Bucket
from tests.pipeline.spark.processes import busy, drivers, executors, until

from lakelog.model.failures import Unavailable
from lakelog.pipeline.files.file_task import FileAnswer, FileResult
from lakelog.pipeline.spark.engine import SparkEngine
from lakelog.pipeline.spark.settings import SparkOptions


def good(answers: "list[FileAnswer] | tuple[FileAnswer, ...]") -> int:
    return sum(isinstance(one, FileResult) for one in answers)


async def cluster(bucket: Bucket) -> dict[str, object]:
    """Two executors in processes of their own; one is killed, and then Spark itself."""
    options = SparkOptions(master="local-cluster[2,1,1024]")
    engine = await SparkEngine.open(options, bucket.url, {})
    try:
        first = await engine.run([bucket.task(number) for number in range(20)])
        held, *others = [bucket.task(number) for number in range(20, 26)]
        bucket.hold(held)
        running = asyncio.create_task(engine.run([held, *others]))
        await until(busy)
        bucket.release(held)
        killed = executors()
        for executor in killed:
            executor.kill()
        after = await running
        for driver in drivers():
            driver.kill()
        try:
            await engine.run([bucket.task(30)])
            failure = ""
        except Unavailable as error:
            failure = str(error)
        return {
            "first": good(list(first)),
            "killed": len(killed),
            "after": good(list(after)),
            "failure": failure,
            "loss": engine.loss,
        }
    finally:
        await engine.close()


async def connect(bucket: Bucket) -> dict[str, object]:
    """A server of Spark Connect, which PySpark starts by itself for this."""
    engine = await SparkEngine.open(SparkOptions(remote="local[2]"), bucket.url, {})
    try:
        first = await engine.run([bucket.task(number) for number in range(20)])
        held = bucket.task(20)
        bucket.hold(held)
        running = asyncio.create_task(engine.run([held]))
        # Its workers are no children of ours that could be looked at; the job runs when it can.
        quick = await engine.run([bucket.task(21)])
        running.cancel()
        done, _ = await asyncio.wait({running}, timeout=20)
        after = await engine.run([bucket.task(22), bucket.task(23)])
        return {
            "slots": engine.slots,
            "first": good(list(first)),
            "quick": good(list(quick)),
            "cancelled": running in done and running.cancelled(),
            "after": good(list(after)),
        }
    finally:
        await engine.close()


def own_home(directory: Path) -> None:
    """A Spark home whose executors write their logs below `directory` and nowhere else."""
    installed = Path(pyspark.__file__).parent
    for name in ("bin", "jars", "python", "sbin"):
        if (installed / name).exists():
            (directory / name).symlink_to(installed / name)
    os.environ["SPARK_HOME"] = str(directory)


def main() -> None:
    kinds = {"cluster": cluster, "connect": connect}
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as root:
        own_home(Path(home))
        told = asyncio.run(kinds[sys.argv[1]](Bucket(Path(root))))
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
