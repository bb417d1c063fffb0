"""`python -m tests.compat.lake`: the whole way of many records, from producers to other engines.

Producers with every codec, idempotent and not, fill a topic while a consumer reads it and the
pipeline turns it into a table. When the table has caught up, everything is consumed once more from
data files. Both readings must be the same, record by record; the table, read by Spark SQL, DuckDB
and PyIceberg through the catalog, must hold exactly the log, hostile records included. With
`--kills` the pipeline is killed so often meanwhile, wherever it is, and another one started. At the
end the topics are deleted, and nothing of them may be left in the object store.
"""

import argparse
import asyncio
import hashlib
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Event, Thread

import confluent_kafka
import pyarrow as pa
from bench.broker import HOST, Launch, ProcessBroker, free_ports
from bench.ours import launch_ours, start_ours
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.lake_log import read_log, send_hostile
from tests.compat.lake_producer import LakeJob
from tests.compat.tables import compare, show
from tests.compat.tables_figures import DUCKDB, Figures, figures, statement
from tests.http.duck import connected

TOPIC, HOSTILE, NAMESPACE = "lake", "hostile", "lakelog"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FRESHNESS_MS = 1_000
CAUGHT_UP_S = 900.0
PATIENCE_S = 60.0
SWEPT_S = 240.0
KILL_S = 12.0
IMPATIENT_BROKER = ("log.orphan_ttl_ms=4000", "log.grace_ms=2000", "log.sweep_interval_ms=1000")
IMPATIENT_PIPELINE = ("pipeline.tidy_s=1", "pipeline.grace_ms=2000")
OF_TOPICS = ("wal/", "compaction/", "tables/")
LOG_APPEND_TIME_BIT = 8
FOR_EVER = str((1 << 63) - 1)


def consume(bootstrap: str, topic: str, partitions: int, count: int) -> dict[int, tuple[int, str]]:
    """Read so many records with a real client; per partition their number and their digest."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"lake-{time.time_ns()}"}
        | {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, at, 0) for at in range(partitions)])
    digests = {at: hashlib.blake2b(digest_size=16) for at in range(partitions)}
    counts = dict.fromkeys(digests, 0)
    heard_s = time.monotonic()
    while sum(counts.values()) < count:
        for message in consumer.consume(10_000, timeout=1.0):
            assert message.error() is None, message.error()
            heard_s = time.monotonic()
            row = (message.offset(), message.timestamp(), message.key(), message.value())
            digests[message.partition()].update(repr((row, message.headers())).encode())
            counts[message.partition()] += 1
        silent_s = time.monotonic() - heard_s
        assert silent_s < PATIENCE_S, f"{sum(counts.values())} of {count} came, then silence"
    consumer.close()
    return {at: (counts[at], digests[at].hexdigest()) for at in digests}


def start_pipeline(data: Path, settings: Sequence[str] = ()) -> ProcessBroker:
    """The pipeline as its own process, with what it says in a file beside the data."""
    command = [sys.executable, "-m", "lakelog.cli.main", "pipeline", "--data", str(data)]
    for setting in settings:
        command += ["--set", setting]
    log_path = data.with_name(f"{data.name}-pipeline.log")
    return ProcessBroker(Launch("pipeline", [*command, "--interval", "1"], 0, log_path))


class Pipelines:
    """A pipeline that is killed now and then, and another one started, as long as it is entered."""

    def __init__(self, data: Path, kills: int) -> None:
        self._data = data
        self._kills = kills
        self._stop = Event()
        self.current = start_pipeline(data)
        self._thread = Thread(target=self._run)

    def __enter__(self) -> "Pipelines":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.current.stop()

    def is_alive(self) -> bool:
        """Whether a pipeline runs, or is about to."""
        return self._thread.is_alive() or self.current.is_alive()

    def _run(self) -> None:
        for number in range(self._kills):
            # Spark takes some seconds to start; each kill meets another moment of a round.
            if self._stop.wait(KILL_S + number * 0.37):
                return
            self.current.kill()
            self.current = start_pipeline(self._data)


def left_behind(data: Path) -> list[str]:
    """Delete the topics, and wait until both sweepers are done; returns the keys that stay."""
    broker = launch_ours(data, settings=IMPATIENT_BROKER)
    pipeline = None
    try:
        broker.wait_ready()
        pipeline = start_pipeline(data, IMPATIENT_PIPELINE)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for gone in admin.delete_topics([TOPIC, HOSTILE]).values():
            gone.result()
        began_s = time.monotonic()
        while (left := keys_of(data)) and time.monotonic() - began_s < SWEPT_S:
            assert pipeline.is_alive(), f"the pipeline has ended: {pipeline.log()}"
            time.sleep(1.0)
        print(f"{len(left)} objects were left after {time.monotonic() - began_s:.1f} s", flush=True)
    finally:
        if pipeline is not None:
            pipeline.stop()
        broker.stop()
    return left


def keys_of(data: Path) -> list[str]:
    """What the object store holds of topics, checkpoints of the domain aside."""
    objects = data / "objects"
    files = (path for path in objects.rglob("*") if path.is_file())
    keys = (path.relative_to(objects).as_posix() for path in files)
    return sorted(key for key in keys if key.startswith(OF_TOPICS))


def behind(http_port: int) -> Mapping[str, int]:
    """How many records each table lacks."""
    with urllib.request.urlopen(f"http://{HOST}:{http_port}/admin/tables") as answer:
        found = json.load(answer)
    return {one["topic"]: one["rows_behind"] for one in found}


def wait_caught_up(http_port: int, pipelines: Pipelines) -> float:
    """Wait until no table lacks anything; returns the seconds it took."""
    began_s = time.monotonic()
    while set(found := behind(http_port).values()) != {0}:
        waited_s = time.monotonic() - began_s
        assert pipelines.is_alive(), f"the pipeline has ended: {pipelines.current.log()}"
        assert waited_s < CAUGHT_UP_S, f"tables lack records: {list(found)}"
        time.sleep(0.5)
    return time.monotonic() - began_s


def produce(jobs: Sequence[LakeJob]) -> float:
    """Run all producers at once; returns the seconds it took."""
    began_s = time.monotonic()
    module = "tests.compat.lake_producer"
    running = [
        subprocess.Popen([sys.executable, "-m", module, json.dumps(asdict(job))]) for job in jobs
    ]
    codes = [process.wait() for process in running]
    assert not any(codes), f"producers ended with {codes}"
    return time.monotonic() - began_s


def log_figures(bootstrap: str, topic: str, partitions: int) -> dict[int, Figures]:
    """The figures of what the log holds, added up by DuckDB."""
    found: dict[int, Figures] = {}
    for partition in range(partitions):
        rows = asyncio.run(read_log(bootstrap, topic, partition))
        if rows.num_rows:
            found |= table_figures(rows)
    return found


def table_figures(rows: pa.Table) -> dict[int, Figures]:
    import duckdb  # noqa: PLC0415 - its name is taken by the function that attaches a catalog

    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        duck.register("read_rows", rows)
        return figures(duck.execute(statement(DUCKDB, comparable("read_rows"))).fetchall())


def comparable(table: str) -> str:
    """The rows without their compression: a batch that was rebuilt may have another."""
    return f"(SELECT * REPLACE (attributes & {LOG_APPEND_TIME_BIT} AS attributes) FROM {table})"


def check_table(bootstrap: str, uri: str, topic: str, partitions: int) -> list[str]:
    """What differs between the engines, or between table and log."""
    report = compare(uri, NAMESPACE, topic)
    show(report)
    found = report.differences()
    with connected(uri) as duck:
        query = statement(DUCKDB, comparable(f'lake."{NAMESPACE}"."{topic}"'))
        table = figures(duck.execute(query).fetchall())
    log = log_figures(bootstrap, topic, partitions)
    found += [
        f"{topic}, partition {at}: log {log.get(at)}, table {table.get(at)}"
        for at in sorted({*log, *table})
        if log.get(at) != table.get(at)
    ]
    return found


def create(bootstrap: str, partitions: int) -> None:
    """Make both topics; hostile timestamps are welcome in the second."""
    config = {"lakelog.table.freshness.ms": str(FRESHNESS_MS)}
    stamps = {"message.timestamp.before.max.ms": FOR_EVER}
    stamps |= {"message.timestamp.after.max.ms": FOR_EVER}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(TOPIC, partitions, 1, config=config),
        NewTopic(HOSTILE, 2, 1, config=config | stamps),
    ]
    for made in admin.create_topics(topics).values():
        made.result()


def story(options: argparse.Namespace, data: Path) -> list[str]:
    """The whole way once; returns what is wrong."""
    port, http_port = free_ports(2)
    broker = start_ours(data, port=port, http_port=http_port)
    try:
        create(broker.bootstrap, options.partitions)
        with Pipelines(data, options.kills) as pipelines:
            return passage(options, broker, http_port, pipelines)
    finally:
        broker.stop()


def passage(
    options: argparse.Namespace, broker: ProcessBroker, http_port: int, pipelines: Pipelines
) -> list[str]:
    """From producers to engines, while broker and pipeline run; returns what is wrong."""
    asyncio.run(send_hostile(broker.bootstrap, HOSTILE))
    share = options.records // len(CODECS)
    jobs = [
        LakeJob(broker.bootstrap, TOPIC, codec, number % 2 == 0, share, number)
        for number, codec in enumerate(CODECS)
    ]
    wanted = (broker.bootstrap, TOPIC, options.partitions, share * len(CODECS))
    with ProcessPoolExecutor(1) as pool:
        reading = pool.submit(consume, *wanted)
        print(f"produced {share * len(CODECS):,} records in {produce(jobs):.1f} s", flush=True)
        before = reading.result()
    print(f"tables caught up {wait_caught_up(http_port, pipelines):.1f} s later", flush=True)
    began_s = time.monotonic()
    after = consume(*wanted)
    print(f"consumed again from data files in {time.monotonic() - began_s:.1f} s", flush=True)
    wrong = [] if before == after else [f"consumed {before}, then {after}"]
    uri = f"http://{HOST}:{http_port}/iceberg"
    for topic, partitions in ((TOPIC, options.partitions), (HOSTILE, 2)):
        wrong += check_table(broker.bootstrap, uri, topic, partitions)
    return wrong


def main(arguments: Sequence[str]) -> int:
    """Run the story; 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.lake", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--kills", type=int, default=0, help="how often the pipeline is killed")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lakelog-lake-") as folder:
        data = Path(folder) / "data"
        wrong = story(options, data)
        wrong += [f"{key} was left behind" for key in left_behind(data)]
    for one in wrong:
        print(one)
    print("differs" if wrong else "the same in log, table and every engine")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
