"""What every scenario has: brokers, a folder, an administrator, a producer, and a way to speak."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.compat.groups.clusters import Cluster, await_true
from tests.compat.groups.crew import ROOT, Crew
from tests.compat.groups.load import Load
from tests.compat.groups.look import Admin, Seen, UnansweredError

LOAD_END_TIMEOUT_S = 180.0
LISTENER_TIMEOUT_S = 10.0
PARTITIONS = 12


@dataclass(slots=True)
class Scene:
    """One run of one scenario."""

    cluster: Cluster
    folder: Path
    admin: Admin
    records: int
    per_second: float
    session_ms: int
    report: Callable[[str], None]
    # How long a group may take to settle, or to read to the end.
    patience_s: float = 120.0
    findings: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Print one line."""
        self.report(f"  {text}")

    def found(self, text: str) -> None:
        """Keep a finding."""
        self.findings.append(text)
        self.report(f"  FOUND {text}")


class LoadProcess:
    """A producer process and what it said last."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.acknowledged = 0
        self.outcome: str | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.compat.groups.load", *load.arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None, "started with a pipe"
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word.isdigit():
                self.acknowledged = int(word)
            else:
                self.outcome = line.strip()
                self.acknowledged = int(rest) if word == "done" else self.acknowledged

    def is_done(self) -> bool:
        """Whether the producer has ended."""
        return self._process.poll() is not None

    def finish(self) -> str:
        """Wait for a producer that has all it needs, or stop one without an end."""
        assert self._process.stdin is not None, "started with a pipe"
        if self.load.records == 0:
            self._process.stdin.close()
        self._process.wait(LOAD_END_TIMEOUT_S)
        self._listener.join(LISTENER_TIMEOUT_S)
        return self.outcome or f"ended with {self._process.returncode}"

    def end(self) -> None:
        """End the producer if it still runs, and close what leads to it."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._listener.join(LISTENER_TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "started with pipes"
            pipe.close()


@contextmanager
def producing(load: Load) -> Iterator[LoadProcess]:
    """Run a producer for as long as the block."""
    process = LoadProcess(load)
    try:
        yield process
    finally:
        process.end()


def look_closely(scene: Scene, crew: Crew) -> Seen | None:
    """Look at a group, keep what must not be, and return None if nobody answers now."""
    group = crew.template.group
    try:
        seen = scene.admin.look(group, classic=crew.template.flavour != "consumer")
    except UnansweredError:
        return None
    if seen.twice():
        scene.found(f"{group}: described with two owners of {seen.twice()}: {seen}")
    return seen


def await_settled(scene: Scene, crew: Crew) -> float:
    """Wait until every running member is in the group and every partition has an owner."""
    group = crew.template.group

    def settled() -> bool:
        untimely = crew.untimely()
        if untimely:
            raise RuntimeError(f"{group}: {untimely}")
        seen = look_closely(scene, crew)
        return (
            seen is not None
            and seen.state == "Stable"
            and set(seen.assignments) == crew.names()
            and len(seen.partitions()) == PARTITIONS
        )

    return await_true(f"{group} settled", settled, scene.patience_s)


def await_drained(scene: Scene, crew: Crew, ends: dict[int, int]) -> float:
    """Wait until the group has committed the end of every partition."""

    def drained() -> bool:
        try:
            return scene.admin.committed(crew.template.group) == ends
        except UnansweredError:
            return False

    return await_true(f"{crew.template.group} at the end", drained, scene.patience_s)
