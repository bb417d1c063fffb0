"""A sink that is killed between its commit and Spark's ends with every record exactly once.

`python -m tests.spark.sink_kills --times 50` lets a process of its own stream files into a topic
that lies in several domains. Whoever watches the topic's heads sees a batch become visible, in one
domain after the other, before Spark has noted that it is written; there the process and its Java
are killed with SIGKILL, mostly, and at other moments at times, and started again from the
checkpoint. In the end the topic must have every line of the files once.
"""

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.lake.running import Broker, running_broker
from tests.spark.stream_kills import GIVE_UP_S, ROOT, Driver, wait_until

import lakelog
from lakelog.index.remote_index import HttpIndex

TOPIC = "sunk"
PARTITIONS = 6
DOMAINS = 3
LINES = 40
KINDS = {"between": 8, "written": 1, "tasks": 1}
"""When it is killed, and how often: between the two commits, after both, or while tasks run."""


class Files:
    """Files of numbered lines, each the next batch of the stream."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        self.lines = 0

    def put(self) -> None:
        """One more, all of it at once."""
        name = f"{self.lines:08}"
        numbers = range(self.lines, self.lines + LINES)
        hidden = self.folder / f".{name}"
        hidden.write_text("".join(f"{number}\n" for number in numbers))
        hidden.rename(self.folder / name)
        self.lines += LINES


class SinkDriver(Driver):
    """The process that writes, and all that it started."""

    def __init__(self, server: str, folder: Path, *arguments: str) -> None:
        self.log = folder / "driver.log"
        self._known: dict[int, str] = {}
        temporary = folder / "temporary"
        temporary.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "tests.spark.sink_driver", "--server", server]
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

    def java(self) -> list[int]:
        """Spark itself, once it is that: what starts it has the same words, and ends."""
        named = self.children("org.apache.spark.deploy.SparkSubmit")
        known = [(one, self._known[one]) for one in named]
        return [one for one, said in known if "bin/java" in said and "launcher.Main" not in said]


class Heads:
    """How much of the topic can be seen."""

    def __init__(self, broker: Broker) -> None:
        self._index = HttpIndex([broker.server.removeprefix("http://")])
        self._loop = asyncio.new_event_loop()
        (topic,) = self._loop.run_until_complete(self._index.topics([TOPIC]))
        self._streams = topic.streams

    def total(self) -> int:
        found = self._loop.run_until_complete(self._index.bounds(self._streams))
        return sum(one.head for one in found.values())

    def close(self) -> None:
        self._loop.run_until_complete(self._index.close())
        self._loop.close()


@dataclass
class Stage:
    """One stream over all its kills."""

    server: str
    folder: Path
    files: Files
    heads: Heads
    chance: random.Random
    killed: Counter[str] = field(default_factory=Counter)

    def listed(self, what: str) -> int:
        """How many batches the checkpoint has offsets or a commit of."""
        folder = self.folder / "checkpoint" / what
        numbers = [int(path.name) for path in folder.glob("*") if path.name.isdigit()]
        return max(numbers, default=-1) + 1

    def round(self, kind: str) -> str:
        """Start it, wait for the moment, kill it; where it landed."""
        # The batch that was under way is written again, then the new file. What grows first is the
        # new one, or a domain that had not taken in its part of the other.
        repeated, before = self.listed("offsets"), self.heads.total()
        self.files.put()
        driver = SinkDriver(self.server, self.folder)
        try:
            java: list[int] = []
            while not java:
                java = driver.java()
                self._await(driver, lambda: True)
                time.sleep(0.1)
            if kind == "written":
                self._await(driver, lambda: self.listed("commits") > repeated)
            elif kind == "tasks":
                self._await(driver, lambda: self.listed("offsets") > repeated)
                time.sleep(self.chance.uniform(0, 0.3))
            else:
                self._await(driver, lambda: self.heads.total() > before)
                time.sleep(self.chance.choice((0.0, 0.0, 0.002, 0.01)))
            for one in java:  # before anything else is looked at: the moment is short
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
        finally:
            driver.kill()
        landed = self._landed(before)
        self.killed[landed] += 1
        return landed

    def finish(self) -> None:
        """Let it write to the end, and end."""
        driver = SinkDriver(self.server, self.folder, "--finish")
        try:
            driver.process.wait(GIVE_UP_S * 3)
            assert driver.process.returncode == 0, driver.said()
        finally:
            driver.kill()

    def _landed(self, before: int) -> str:
        """Between the commits is what was seen and is not in the checkpoint."""
        if self.listed("commits") == self.listed("offsets"):
            return "after both commits"
        return "between the commits" if self.heads.total() > before else "before both commits"

    def _await(self, driver: SinkDriver, holds: Callable[[], bool]) -> None:
        wait_until(lambda: driver.has_ended or holds(), "the stream goes on")
        assert not driver.has_ended, driver.said()


def compared(broker: Broker, lines: int) -> None:
    """Raises unless the topic has every line once."""
    found = lakelog.read(TOPIC, server=broker.server, columns=["key", "value"])
    counts = Counter(int(value) for value in found["value"].to_pylist())
    twice = [number for number, count in counts.items() if count > 1]
    lacking = sorted(set(range(lines)) - counts.keys())
    assert not twice, f"{len(twice)} lines came more than once, such as {sorted(twice)[:5]}"
    assert not lacking, f"{len(lacking)} lines are missing, such as {lacking[:5]}"
    assert len(counts) == lines, f"{len(counts) - lines} lines were never written to a file"
    for key, value in zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True):
        assert key == (b"k" + value if int(value) % 2 == 0 else None)


def kill_often(
    kinds: list[str], seed: int, folder: Path, *, say: Callable[[str], None]
) -> tuple[Counter[str], int]:
    """Kill a sink at these moments, one after another; where kills landed, and how many lines."""
    with running_broker(folder / "broker", {"metadata.domains": str(DOMAINS)}) as broker:
        broker.create(TOPIC, PARTITIONS)
        files, heads = Files(folder / "files"), Heads(broker)
        stage = Stage(broker.server, folder, files, heads, random.Random(seed))
        try:
            for number, kind in enumerate(kinds, 1):
                began_s = time.monotonic()
                landed = stage.round(kind)
                took_s = time.monotonic() - began_s
                say(f"{number}: {kind} after {took_s:.1f} s, landed {landed}")
        finally:
            heads.close()
        stage.finish()
        compared(broker, files.lines)
        return stage.killed, files.lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    kinds = chance.choices(list(KINDS), weights=list(KINDS.values()), k=arguments.times)
    print(f"seed {arguments.seed}: {', '.join(kinds)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="sink-kills-") as folder:
        killed, lines = kill_often(
            kinds, arguments.seed, Path(folder), say=lambda text: print(text, flush=True)
        )
    landed = ", ".join(f"{count} {where}" for where, count in sorted(killed.items()))
    print(f"{arguments.times} kills ({landed}), {lines} lines, each once")


if __name__ == "__main__":
    main()
