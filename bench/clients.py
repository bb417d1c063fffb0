"""Client processes from the parent's side: start, release together, collect, measure."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from bench.broker import CLIENT_CORE, ProcessBroker, pinned
from bench.jobs import FranzGoJob, JavaJob, Job, Outcome, SaturateJob

CPU_SECONDS_MIN = 0.001
"""Less than that is not measured, only rounded."""


class ClientError(RuntimeError):
    """A client process ended without a result."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What the clients did and what it cost the broker."""

    outcomes: tuple[Outcome, ...]
    cpu_seconds: float
    wall_seconds: float
    """Of the client that took longest, by its own clock: what it says afterwards is no work."""
    rss_bytes: int
    """Of the broker at the end."""

    def megabytes(self) -> float:
        """Payload that was delivered, in MB."""
        return sum(outcome.payload_bytes for outcome in self.outcomes) / 1e6

    def megabytes_per_cpu_second(self) -> float:
        """Payload per second of broker CPU."""
        return self.megabytes() / max(self.cpu_seconds, CPU_SECONDS_MIN)

    def megabytes_per_second(self) -> float:
        """Payload per second of wall clock."""
        return self.megabytes() / self.wall_seconds

    def microseconds_per_request(self) -> float:
        """Broker CPU a request; 0 where no client counted its requests."""
        requests = sum(outcome.requests for outcome in self.outcomes)
        return self.cpu_seconds / requests * 1e6 if requests else 0.0

    def failures(self) -> int:
        """Records that did not arrive."""
        return sum(outcome.failures for outcome in self.outcomes)


def run_jobs(broker: ProcessBroker, jobs: Sequence[Job]) -> Effort:
    """Run one process per job, all released at once, and measure the broker meanwhile."""
    processes = [start(job) for job in jobs]
    try:
        for process in processes:
            expect_ready(process)
        cpu_before = broker.cpu_seconds()
        for process in processes:
            say(process, "go")
        outcomes = tuple(collect(process) for process in processes)
        cpu_seconds = broker.cpu_seconds() - cpu_before
        rss_bytes = broker.rss_bytes()
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
    wall_seconds = max(outcome.seconds for outcome in outcomes)
    return Effort(outcomes, cpu_seconds, wall_seconds, rss_bytes)


def start(job: Job) -> subprocess.Popen[str]:
    """Start a client process and give it its job."""
    process = subprocess.Popen(
        pinned(program(job), CLIENT_CORE),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    say(process, msgspec.json.encode(job).decode())
    return process


def program(job: Job) -> list[str]:
    """Return the command of the client that does such jobs."""
    match job:
        case FranzGoJob():
            return [job.program]
        case JavaJob():
            return [sys.executable, "-m", "bench.java_producer"]
        case SaturateJob():
            return [sys.executable, "-m", "bench.saturate"]
        case _:
            return [sys.executable, "-m", "bench.worker"]


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
