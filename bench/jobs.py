"""What client processes are told and what they report: one JSON line each way.

Protocol: one line with the job comes in, `ready` goes out once the client has connected, `go` comes
in, one line with the outcome goes out. So process start and connecting never count, and the parent
can read the broker's CPU time around the work alone. Every client speaks it, in any language.
"""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

Told = TypeVar("Told")


class WriteJob(msgspec.Struct, frozen=True, kw_only=True):
    """Write records for some seconds or up to some bytes, whichever is first, with acks=all.

    Then wait for every acknowledgement, which belongs to the measured time.
    """

    bootstrap: str = ""
    topic: str = ""
    partitions: int
    record_bytes: int
    batch_bytes: int
    linger_ms: float = 0.0
    seconds: float
    bytes_max: int
    """Of values."""
    seed: int = 0


class ProduceJob(WriteJob, frozen=True, kw_only=True, tag="produce"):
    """By librdkafka, partitions in turn."""

    rate_bytes_s: float = 0.0
    random_ratio: float = 0.25
    with_latency: bool = False
    chunk_records: int = 500


class SaturateJob(WriteJob, frozen=True, kw_only=True, tag="saturate"):
    """By bare sockets with prepared requests."""

    in_flight: int
    """Requests without an answer, over all connections."""
    connections: int = 2
    request_partitions: int = 1


class JavaJob(WriteJob, frozen=True, kw_only=True, tag="java"):
    """By Kafka's own `kafka-producer-perf-test`."""

    command: tuple[str, ...]
    """What runs that program, before its arguments."""


class FranzGoJob(WriteJob, frozen=True, kw_only=True, tag="franz-go"):
    """By franz-go, partitions in turn."""

    program: str


class ConsumeJob(msgspec.Struct, frozen=True, tag="consume"):
    """Read by assignment: a topic of so many records again and again, or its tail.

    A pass over the topic that has begun is finished, so a job without seconds makes one.
    """

    bootstrap: str
    topic: str
    partitions: int
    consumers: int
    records: int = 0
    seconds: float = 0.0


class ParkJob(msgspec.Struct, frozen=True, tag="park"):
    """Be the members of one group, on a topic that nobody writes to."""

    bootstrap: str
    topic: str
    consumers: int
    seconds: float


Job = ProduceJob | SaturateJob | JavaJob | FranzGoJob | ConsumeJob | ParkJob


class Outcome(msgspec.Struct, frozen=True):
    """What a client saw."""

    payload_bytes: int
    records: int
    seconds: float
    failures: int = 0
    requests: int = 0
    """Produce requests; 0 where the client does not say."""
    batch_bytes: float = 0.0
    latencies_ms: tuple[float, float, float] = (0.0, 0.0, 0.0)


def serve(kind: Any, work: Callable[[Told], Outcome]) -> None:
    """Do the one job that the first line of standard input describes."""
    outcome = work(msgspec.json.decode(sys.stdin.readline().encode(), type=kind))
    print(msgspec.json.encode(outcome).decode(), flush=True)


def wait_for_go() -> None:
    """Say that the client is ready and wait for the parent."""
    print("ready", flush=True)
    sys.stdin.readline()
