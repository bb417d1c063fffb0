"""Client processes from the parent's side: start, release together, collect, measure."""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from bench.broker import CLIENT_CORE, ProcessBroker, pinned
from bench.worker import Job, Outcome

READY_TIMEOUT_S = 60.0


class ClientError(RuntimeError):
    """A client process ended without a result."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What the clients did and what it cost the broker."""

    outcomes: tuple[Outcome, ...]
    cpu_seconds: float
    wall_seconds: float

    def megabytes(self) -> float:
        """Payload that was delivered, in MB."""
        return sum(outcome.payload_bytes for outcome in self.outcomes) / 1e6

    def megabytes_per_cpu_second(self) -> float:
        """Payload per second of broker CPU."""
        # Ten milliseconds is one tick of the kernel's accounting: less cannot be seen.
        return self.megabytes() / max(self.cpu_seconds, 0.01)

    def megabytes_per_second(self) -> float:
        """Payload per second of wall clock."""
        return self.megabytes() / self.wall_seconds

    def failures(self) -> int:
        """Records that did not arrive."""
        return sum(outcome.failures for outcome in self.outcomes)


def run_jobs(broker: ProcessBroker, jobs: Sequence[Job]) -> Effort:
    """Run one process per job, all released at once, and measure the broker meanwhile."""
    processes = [start(job) for job in jobs]
    try:
        for process in processes:
            expect_ready(process)
        cpu_before, wall_before = broker.cpu_seconds(), time.perf_counter()
        for process in processes:
            say(process, "go")
        outcomes = tuple(collect(process) for process in processes)
        wall_seconds = time.perf_counter() - wall_before
        cpu_seconds = broker.cpu_seconds() - cpu_before
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
    return Effort(outcomes, cpu_seconds, wall_seconds)


def start(job: Job) -> subprocess.Popen[str]:
    """Start a client process and give it its job."""
    process = subprocess.Popen(
        pinned([sys.executable, "-m", "bench.worker"], CLIENT_CORE),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    say(process, msgspec.json.encode(job).decode())
    return process


def say(process: subprocess.Popen[str], line: str) -> None:
    """Write one line to a client."""
    assert process.stdin is not None, "started with a pipe"
    process.stdin.write(line + "\n")
    process.stdin.flush()


def expect_ready(process: subprocess.Popen[str]) -> None:
    """Wait until a client has connected."""
    assert process.stdout is not None, "started with a pipe"
    line = process.stdout.readline()
    if line.strip() != "ready":
        raise ClientError(f"a client said {line!r} and ended with {process.poll()}")


def collect(process: subprocess.Popen[str]) -> Outcome:
    """Wait for a client's result."""
    assert process.stdout is not None, "started with a pipe"
    line = process.stdout.readline()
    if not line:
        raise ClientError(f"a client ended with {process.wait()} and no result")
    return msgspec.json.decode(line, type=Outcome)
