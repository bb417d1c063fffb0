"""A broker under test: one process tree on loopback, seen from outside.

Rules: a broker is judged by what its processes use (CPU seconds, resident memory) and what its port
answers. It is ended by its own process id only. A process that dies while it starts says why.
"""

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

HOST = "127.0.0.1"
READY_POLL_S = 0.005
LOG_TAIL_BYTES = 4_000
BROKER_CORE = 0
CLIENT_CORE = 1
# Read once, at import: a driver that pins itself later would otherwise see one core only.
ALL_CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
PIN_AND_RUN = """
import os, sys
os.sched_setaffinity(0, map(int, sys.argv[1].split(",")))
os.execvp(sys.argv[2], sys.argv[2:])
"""
SETTLE_SHARE = 0.05
"""Of a core, over SETTLE_STEP_S: a broker that uses less has nothing left to do."""
SETTLE_STEP_S = 0.25
SETTLE_S_MAX = 15.0
CAN_PIN = {BROKER_CORE, CLIENT_CORE} <= ALL_CORES


class StartError(RuntimeError):
    """The broker's process ended, or did not answer in time."""


class Broker(Protocol):
    """What drivers and checkers may ask of a running broker."""

    @property
    def name(self) -> str:
        """`ours` or `kafka`."""

    @property
    def bootstrap(self) -> str:
        """`host:port` for a client."""

    @property
    def pid(self) -> int:
        """The process that was started."""

    def cpu_seconds(self) -> float:
        """User and system seconds used so far by the process and its children."""

    def rss_bytes(self) -> int:
        """Resident memory of the process and its children."""

    def stop(self) -> None:
        """End in good order: SIGTERM, then SIGKILL after a time-out."""

    def kill(self) -> None:
        """End at once: SIGKILL."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one broker process."""

    name: str
    command: Sequence[str]
    port: int
    log_path: Path
    ready_timeout_s: float = 120.0
    stop_timeout_s: float = 15.0
    core: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


class ProcessBroker:
    """A broker that is a child process of this one."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self.name = launch.name
        self.bootstrap = f"{HOST}:{launch.port}"
        self.port = launch.port
        self.started_s = time.monotonic()
        with launch.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                pinned(launch.command, launch.core),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **launch.environment},
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._watch = psutil.Process(self.pid)

    def wait_ready(self) -> float:
        """Return the seconds it took until the Kafka port answered ApiVersions."""
        deadline = self.started_s + self._launch.ready_timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise StartError(f"{self.name} ended with {self._process.returncode}: {self.log()}")
            if answers_api_versions(self.port):
                return time.monotonic() - self.started_s
            time.sleep(READY_POLL_S)
        self.kill()
        raise StartError(f"{self.name} did not answer on {self.bootstrap}: {self.log()}")

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def log(self) -> str:
        """The end of what the process has printed."""
        try:
            written = self._launch.log_path.read_bytes()
        except FileNotFoundError:
            return ""
        return written[-LOG_TAIL_BYTES:].decode(errors="replace")

    def cpu_seconds(self) -> float:
        """User and system seconds used so far by the process and its children."""
        times = self._watch.cpu_times()
        total = times.children_user + times.children_system
        if sys.platform == "linux":
            total += time.clock_gettime(process_clock(self.pid))
        else:
            total += times.user + times.system
        for child in self._watch.children(recursive=True):
            used = child.cpu_times()
            total += used.user + used.system
        return float(total)

    def settle(self) -> None:
        """Return when nothing is left to do: compilers and clean-up go on after the load."""
        until = time.monotonic() + SETTLE_S_MAX
        used = SETTLE_STEP_S
        while used > SETTLE_SHARE * SETTLE_STEP_S and time.monotonic() < until:
            before = self.cpu_seconds()
            time.sleep(SETTLE_STEP_S)
            used = self.cpu_seconds() - before

    def rss_bytes(self) -> int:
        """Resident memory of the process and its children."""
        tree = [self._watch, *self._watch.children(recursive=True)]
        return sum(int(process.memory_info().rss) for process in tree)

    def stop(self) -> None:
        """End in good order: SIGTERM, then SIGKILL after a time-out."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(self._launch.stop_timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End at once: SIGKILL."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def process_clock(pid: int) -> int:
    """Return Linux's clock of the CPU time of a process, in nanoseconds and not in ticks of 10 ms.

    What clock_getcpuclockid(3) makes: the inverted id, three bits to the left, with CPUCLOCK_SCHED.
    """
    return (~pid << 3) | 2


def pinned(command: Sequence[str], core: int | None) -> list[str]:
    """Return the command so that the whole process runs on one core, or on all of them.

    "All" has to be said too: a child inherits the one core of a driver that pinned itself.
    """
    if not CAN_PIN:
        return list(command)
    cores = ALL_CORES if core is None else {core}
    return [
        sys.executable,
        "-c",
        PIN_AND_RUN,
        ",".join(map(str, sorted(cores))),
        *command,
    ]


def free_ports(count: int) -> list[int]:
    """Return that many loopback ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def answers_api_versions(port: int, timeout_s: float = 2.0) -> bool:
    """Whether a Kafka listener on this port answers ApiVersions version 0."""
    client_id = b"ready"
    body = struct.pack(">hhih", 18, 0, 7, len(client_id)) + client_id
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(struct.pack(">i", len(body)) + body)
            head = connection.recv(8, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == 8 and head[4:] == struct.pack(">i", 7)
