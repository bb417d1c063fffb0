"""The place where brokers meet: who takes part, on which storage, for how long.

Rules: both brokers get the same storage, the same core and the same load, in turns (ABAB). A run
ends at its seconds or its bytes, whichever is first, and a data directory stays below a gigabyte:
memory that a virtual machine has not touched lately costs five times as much to write, so a
directory on tmpfs that grows measures the hypervisor. Who deletes its topics soon is waited for;
who does not is replaced by a fresh broker with a new warm-up.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.broker import BROKER_CORE, ProcessBroker
from bench.ours import launch_ours
from bench.peer import Peer, launch_peer
from bench.results import KAFKA, OURS, Recorder

DATA_BYTES_MAX = 1 << 30
DELETE_POLL_S = 0.2
MEMORY_DIRECTORY = Path("/dev/shm")
Load = Callable[[ProcessBroker, float], float]
"""One run of the load to warm up with, of at most so many seconds; returns how long it was."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything."""

    rounds: int
    seconds: float
    warm_up_seconds: float
    """Of the load that is measured: by then a just-in-time compiler has done its work."""
    bytes_max: int
    """Of a run, so that memory is used again."""
    partitions: tuple[int, ...]
    connections: tuple[int, ...]
    quick: bool


QUICK = Scale(1, 0.7, 2.0, 32 << 20, (1, 1_000), (16, 256), quick=True)
FULL = Scale(5, 5.0, 40.0, 160 << 20, (1, 64, 1_000, 10_000), (1, 16, 1_000, 5_000), quick=False)


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of the comparison: its name and how to start it on a directory."""

    name: str
    launch: Callable[[Path, int | None], ProcessBroker]
    delete_s: float = 0.0
    """How long a deleted topic's files stay; 0 where that is too long to wait for."""


def our_arm() -> Arm:
    """Our broker, by the command that users type."""
    return Arm(OURS, lambda data, core: launch_ours(data, core=core))


def peer_arm(peer: Peer) -> Arm:
    """Apache Kafka as a single node."""
    return Arm(KAFKA, lambda data, core: launch_peer(peer, data, core=core), delete_s=PEER_DELETE_S)


PEER_DELETE_S = 10.0
"""Kafka is told to delete after a second; its threads take a while."""


@dataclass(frozen=True, slots=True)
class Arena:
    """All that a driver needs: arms, scale, storage, where results go, which cells are wanted."""

    arms: Sequence[Arm]
    scale: Scale
    recorder: Recorder
    memory: Path
    disk: Path
    cells: str = ""
    """What a cell's name must contain to be measured."""

    def wants(self, cell: str) -> bool:
        """Whether a cell was asked for."""
        return self.cells in cell

    @contextmanager
    def folder(self, *, on_disk: bool = False) -> Iterator[Path]:
        """Lend a fresh directory on tmpfs or on the disk, and remove it afterwards."""
        with tempfile.TemporaryDirectory(
            prefix="lakelog-bench-", dir=self.disk if on_disk else self.memory
        ) as folder:
            yield Path(folder)

    @contextmanager
    def contest(self, warm_up: Load, *, on_disk: bool = False) -> Iterator[list["Contestant"]]:
        """Run all arms side by side, each warmed up."""
        with self.folder(on_disk=on_disk) as folder:
            contestants = [Contestant(arm, folder, warm_up, self.scale) for arm in self.arms]
            try:
                for contestant in contestants:
                    contestant.begin()
                yield contestants
            finally:
                for contestant in contestants:
                    contestant.end()


class Contestant:
    """One arm while it runs: the broker may be replaced, the name stays."""

    def __init__(self, arm: Arm, folder: Path, warm_up: Load, scale: Scale) -> None:
        self.name = arm.name
        self._arm = arm
        self._folder = folder
        self._warm_up = warm_up
        self._scale = scale
        self._births = 0
        self._broker: ProcessBroker | None = None

    @property
    def broker(self) -> ProcessBroker:
        """The running broker."""
        assert self._broker is not None, "begin() comes first"
        return self._broker

    def begin(self) -> None:
        """Start on a fresh directory and warm up.

        Where deleted topics stay on disk, a quarter of the budget ends that: runs need the rest.
        """
        self._births += 1
        self._broker = self._arm.launch(self._data(), BROKER_CORE)
        self._broker.wait_ready()
        left = self._scale.warm_up_seconds
        while left > 0 and self._has_room(DATA_BYTES_MAX // 4):
            left -= self._warm_up(self._broker, left)
        self._broker.settle()

    def make_room(self) -> None:
        """Replace the broker if a run may outgrow the directory's budget."""
        if not self._has_room(DATA_BYTES_MAX - self._scale.bytes_max):
            self.end()
            shutil.rmtree(self._data(), ignore_errors=True)
            self.begin()

    def end(self) -> None:
        """Stop the broker, if it runs."""
        if self._broker is not None:
            self._broker.stop()
            self._broker = None

    def _data(self) -> Path:
        return self._folder / f"{self.name}-{self._births}"

    def _has_room(self, bytes_max: int) -> bool:
        until = time.monotonic() + self._arm.delete_s
        while bytes_under(self._data()) > bytes_max:
            if time.monotonic() >= until:
                return False
            time.sleep(DELETE_POLL_S)
        return True


def bytes_under(folder: Path) -> int:
    """Return the bytes that files below a folder occupy (sparse files count what they hold)."""
    total = 0
    # os.walk and not rglob: it passes over folders that a broker deletes while we count.
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(parent, name).lstat().st_blocks * 512
            except FileNotFoundError:
                continue
    return total
