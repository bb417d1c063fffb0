"""A stream that is killed again and again ends with every record exactly once.

`python -m tests.spark.stream_kills --times 50` lets a process of its own stream a topic, from
`latest` on, into a Parquet sink, while records are produced and compacted. It is killed with
SIGKILL at random moments, whole or in part, and started again from its checkpoint. In the end the
sink must have every record from the first checkpointed offsets on, once, with its value.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
from confluent_kafka import Producer
from tests.lake.running import Broker, running_broker
from tests.spark.stream_driver import RESULT

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "killed"
PARTITIONS = 3
KINDS = {
    "start": 3,
    "offsets": 5,
    "commits": 3,
    "later": 4,
    "python": 2,
    "java": 2,
    "worker": 4,
    "planner": 2,
    "executor": 1,
}
"""When or what is killed, and how often in relation to the others."""

PARTS = ("python", "java", "worker", "planner", "executor")
GIVE_UP_S = 600.0
PROGRAMS = {
    "java": "org.apache.spark.deploy.SparkSubmit",
    "executor": "CoarseGrainedExecutorBackend",
    "planner": "python_streaming_source_runner",
}
CLUSTER = "local-cluster[1,2,1024]"


class Production(threading.Thread):
    """Records into all partitions until it is ended, and what was acknowledged of them."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failures: list[object] = []
        self._ending = threading.Event()
        address = str(broker.running.address)
        self._producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})

    def run(self) -> None:
        number = 0
        while not self._ending.wait(0.1):
            for partition in range(PARTITIONS):
                for _ in range(4):
                    value = b"%d of %d" % (number, partition)
                    self._producer.produce(
                        TOPIC, value, partition=partition, on_delivery=self._delivered
                    )
                    number += 1
            self._producer.poll(0)
        assert self._producer.flush(GIVE_UP_S) == 0

    def end(self) -> None:
        self._ending.set()
        self.join(GIVE_UP_S)
        assert not self.failures, self.failures[:3]

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failures.append(error)
            return
        place = (message.partition(), message.offset())  # type: ignore[attr-defined]  # a confluent message
        self.acknowledged[place] = message.value()  # type: ignore[attr-defined]  # as above


@contextmanager
def compacting(broker: Broker, every_s: float) -> Iterator[None]:
    """Rounds of the pipeline meanwhile, so that what is read moves."""
    ending = threading.Event()

    def work() -> None:
        while not ending.wait(every_s):
            broker.compact()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(GIVE_UP_S)


class Driver:
    """The streaming process and all that it started."""

    def __init__(self, server: str, folder: Path, *arguments: str) -> None:
        self.log = folder / "driver.log"
        self._known: dict[int, str] = {}
        """Children are nobody's when their parent is killed, and must be killed all the same."""
        temporary = folder / "temporary"
        temporary.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "tests.spark.stream_driver", "--server", server]
        command += ["--topic", TOPIC, "--folder", str(folder), *arguments]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(temporary)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def children(self, what: str = "") -> list[int]:
        """Everything below the process whose command line has this in it."""
        parents = dict(_parents())
        found = []
        for child in parents:
            above = child
            while above in parents and above != self.process.pid:
                above = parents[above]
            if above == self.process.pid and child != above:
                self._known[child] = _command(child)
                found.append(child)
        return sorted(child for child in found if what in self._known[child])

    def workers(self) -> list[int]:
        """The forked processes that run tasks."""
        daemons = self.children("pyspark.daemon pyspark.worker")
        parents = dict(_parents())
        return [one for one in daemons if parents.get(one) in daemons]

    def parts(self, kind: str) -> list[int]:
        """The processes that a kind of strike is about, as far as they are there."""
        match kind:
            case "python":  # its Java ends by itself
                self.children()
                return [self.process.pid]
            case "worker":
                return self.workers()
            case _:
                return self.children(PROGRAMS[kind])

    def kill(self) -> None:
        """All of it at once."""
        self.children()
        self.process.kill()
        for one in self._left():
            _kill(one)
        self.await_end()

    def await_end(self) -> None:
        """Until nothing of it is left."""
        self.process.wait(GIVE_UP_S)
        wait_until(lambda: not self._left(), "what was killed ends")

    def _left(self) -> list[int]:
        """What still runs of it; a number may have gone to another process."""
        running = dict(_parents())
        known = self._known.items()
        return [one for one, command in known if one in running and _command(one) == command]


@dataclass
class Stage:
    """One stream over all its kills."""

    server: str
    folder: Path
    chance: random.Random
    first: str | None = None
    """The offsets of the first batch, as they were first seen."""
    killed: dict[str, int] = field(default_factory=dict)

    def listed(self, what: str) -> int:
        """How many batches the checkpoint has offsets or a commit of."""
        folder = self.folder / "checkpoint" / what
        numbers = [int(path.name) for path in folder.glob("*") if path.name.isdigit()]
        return max(numbers, default=-1) + 1

    def round(self, kind: str) -> None:
        """Start it, wait for the moment, kill it."""
        arguments = ("--master", CLUSTER) if kind == "executor" else ()
        driver = Driver(self.server, self.folder, *arguments)
        try:
            if kind == "start":
                self._pass(driver, self.chance.uniform(0, 10))
            else:
                self._await(driver, "commits")
                self._strike(driver, kind)
        finally:
            driver.kill()
        self.killed[kind] = self.killed.get(kind, 0) + 1
        self._check_first()

    def finish(self) -> None:
        """Let it read to the end, and end."""
        driver = Driver(self.server, self.folder, "--finish")
        try:
            driver.process.wait(GIVE_UP_S * 3)
            assert driver.process.returncode == 0, driver.said()
        finally:
            driver.kill()
        self._check_first()

    def _strike(self, driver: Driver, kind: str) -> None:
        if kind == "later":
            self._pass(driver, self.chance.uniform(0, 3))
        elif kind == "commits":
            self._await(driver, "commits")
            self._pass(driver, self.chance.uniform(0, 0.2))
        else:
            self._await(driver, "offsets")
            self._pass(driver, self.chance.uniform(0, 0.3))
        if kind in PARTS:
            self._strike_part(driver, kind)

    def _strike_part(self, driver: Driver, kind: str) -> None:
        parts: list[int] = []

        def is_there() -> bool:
            parts[:] = driver.parts(kind)
            return bool(parts) or driver.has_ended

        wait_until(is_there, f"{kind} runs")
        assert parts, driver.said()
        before = self.listed("commits")
        _kill(*(self.chance.sample(parts, 1) if kind == "worker" else parts))
        if kind in {"python", "java"}:
            driver.await_end()
        else:  # Spark repeats the task, or the query ends
            wait_until(
                lambda: driver.has_ended or self.listed("commits") > before, f"{kind} is replaced"
            )

    def _await(self, driver: Driver, what: str) -> None:
        """The next batch in this part of the checkpoint."""
        before = self.listed(what)
        wait_until(lambda: driver.has_ended or self.listed(what) > before, f"{what} grow")
        assert not driver.has_ended, driver.said()

    def _pass(self, driver: Driver, wait_s: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            driver.process.wait(wait_s)
            raise AssertionError(driver.said())

    def _check_first(self) -> None:
        path = self.folder / "checkpoint" / "offsets" / "0"
        found = path.read_text().splitlines()[-1] if path.exists() else None
        assert self.first is None or found == self.first, (self.first, found)
        self.first = found


def compared(stage: Stage, acknowledged: dict[tuple[int, int], bytes]) -> int:
    """How many records the sink has; raises unless they are those that it must have."""
    assert stage.first is not None
    first = json.loads(stage.first)[TOPIC]
    expected = {at: value for at, value in acknowledged.items() if at[1] >= first[str(at[0])]}
    found = pq.read_table(stage.folder / RESULT)
    places = list(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))
    twice = len(places) - len(set(places))
    lacking = sorted(expected.keys() - set(places))
    more = sorted(set(places) - expected.keys())
    assert not twice, f"{twice} records came twice"
    assert not lacking, f"{len(lacking)} records are missing, such as {lacking[:5]}"
    assert not more, f"{len(more)} records were never written, such as {more[:5]}"
    assert dict(zip(places, found["value"].to_pylist(), strict=True)) == expected
    return len(places)


def kill_often(kinds: list[str], seed: int, folder: Path, *, say: Callable[[str], None]) -> int:
    """Kill a stream in these ways, one after another; how many records it has read."""
    with running_broker(folder / "broker") as broker, compacting(broker, 15.0):
        broker.create(TOPIC, PARTITIONS)
        production = Production(broker)
        production.start()
        stage = Stage(broker.server, folder, random.Random(seed))
        try:
            for number, kind in enumerate(kinds, 1):
                began_s = time.monotonic()
                stage.round(kind)
                took_s = time.monotonic() - began_s
                batches = stage.listed("offsets"), stage.listed("commits")
                say(f"{number}: {kind} after {took_s:.1f} s, offsets/commits {batches}")
        finally:
            production.end()
        stage.finish()
        return compared(stage, production.acknowledged)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + GIVE_UP_S
    while not holds():
        assert time.monotonic() < deadline_s, f"not within {GIVE_UP_S:g} s: {what}"
        time.sleep(0.005)


def _parents() -> Iterator[tuple[int, int]]:
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                yield int(path.name), int(fields[1])


def _command(process: int) -> str:
    with suppress(OSError):
        return (Path("/proc") / str(process) / "cmdline").read_text().replace("\0", " ")
    return ""


def _kill(*processes: int) -> None:
    assert processes, "there is nothing to kill"
    for one in processes:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    kinds = list(KINDS)[: arguments.times]
    more = arguments.times - len(kinds)
    kinds += chance.choices(list(KINDS), weights=list(KINDS.values()), k=more)
    chance.shuffle(kinds)
    print(f"seed {arguments.seed}: {', '.join(kinds)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="stream-kills-") as folder:
        count = kill_often(
            kinds, arguments.seed, Path(folder), say=lambda text: print(text, flush=True)
        )
    print(f"{len(kinds)} kills, {count} records, each once")


if __name__ == "__main__":
    main()
