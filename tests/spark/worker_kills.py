"""Spark's Python workers killed while they read: `python -m tests.spark.worker_kills --times 20`.

Every read must have all rows once, though a task of it died and was done again.
"""

import argparse
import os
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession
from tests.lake.running import Broker, running_broker
from tests.spark.kinds import reader

from lakelog.pipeline.spark.session import SessionStart
from lakelog.pipeline.spark.settings import SparkOptions

RECORDS = 400_000
TRIES_MAX = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder)) as broker:
        broker.create("killed", 2)
        for partition in (0, 1):
            for start in range(0, RECORDS // 2, 50_000):
                values = [b"%0100d" % at for at in range(start, start + 50_000)]
                broker.produce("killed", values, partition=partition)
        with ThreadPoolExecutor(1) as pool:
            session = pool.submit(SessionStart(SparkOptions(master="local[2,4]")).run).result()
        try:
            reader(session.spark, broker, "killed").load().count()  # workers are there then
            killed = 0
            for _ in range(TRIES_MAX + times):
                killed += read_and_kill(session.spark, broker)
                if killed >= times:
                    break
            assert killed >= times, f"only {killed} reads lost a worker"
            print(f"{killed} reads lost a worker and had every row once")
        finally:
            session.close()


def read_and_kill(spark: SparkSession, broker: Broker) -> bool:
    """One read; whether a worker of it was killed."""
    group = os.urandom(8).hex()
    tracker = spark.sparkContext.statusTracker()
    ended = threading.Event()
    frame = reader(spark, broker, "killed", minPartitions="4").load()

    def kill() -> None:
        while not ended.is_set():
            stages = tracker.getActiveStageIds()
            found = [tracker.getStageInfo(one) for one in stages]
            if any(one is not None and one.numActiveTasks for one in found):
                for process in workers()[:1]:
                    os.kill(process, signal.SIGKILL)
                return
            time.sleep(0.001)

    thread = threading.Thread(target=kill)
    spark.sparkContext.setJobGroup(group, "read")
    thread.start()
    try:
        row = frame.selectExpr("count(*)", "count(distinct partition, offset)", "sum(offset)")
        half = RECORDS // 2
        assert tuple(row.collect()[0]) == (RECORDS, RECORDS, half * (half - 1))
    finally:
        ended.set()
        thread.join()
    stages = [
        tracker.getStageInfo(stage)
        for job in tracker.getJobIdsForGroup(group)
        if (info := tracker.getJobInfo(job)) is not None
        for stage in info.stageIds
    ]
    return any(one is not None and one.numFailedTasks for one in stages)


def workers() -> list[int]:
    """The processes that Spark's daemon of this process's session forked."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(folder.name))
    ours, found = [os.getpid()], []
    while ours:
        process = ours.pop()
        for child in children.get(process, ()):
            ours.append(child)
            if b"pyspark.daemon" in _command(process) and b"pyspark.worker" in _command(process):
                found.append(child)
    return found


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    main()
