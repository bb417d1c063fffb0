"""A producer that outlives its broker: writes stamped records and notes what it was told.

It reads one JSON line with its job and then writes until standard input ends. Every delivery report
becomes a line of its notes: `a partition sequence offset`, `f partition sequence reason` or, if
librdkafka gives up for good, `x reason`.
"""

import sys
import threading
import time
from pathlib import Path
from typing import TextIO

import confluent_kafka
import msgspec
from tests.compat.crash_check import Stamp, encode_payload

FLUSH_TIMEOUT_S = 120.0


class CrashJob(msgspec.Struct, frozen=True):
    """What one producer process does."""

    bootstrap: str
    topic: str
    partitions: int
    name: str
    idempotent: bool
    records_per_second: float
    padding: int
    notes: str


class Notes:
    """The file in which a producer keeps what it was told."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def delivered(self, stamp: Stamp, error: object, message: confluent_kafka.Message) -> None:
        """Note one delivery report."""
        if error is None:
            line = f"a {stamp.partition} {stamp.sequence} {message.offset()}"
        else:
            line = f"f {stamp.partition} {stamp.sequence} {error}"
        self._file.write(line + "\n")

    def fatal(self, reason: str) -> None:
        """Note that nothing more will be written."""
        self._file.write(f"x {reason}\n")

    def keep(self) -> None:
        """Let the parent see the notes so far."""
        self._file.flush()


def run(job: CrashJob, stop: threading.Event) -> None:
    """Write at a steady rate until told to stop, then wait for the last reports."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "enable.idempotence": job.idempotent,
            "message.timeout.ms": 600_000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 50,
            "log_level": 2,
        }
    )
    sequences = [0] * job.partitions
    with Path(job.notes).open("w") as file:
        notes = Notes(file)
        started = time.monotonic()
        sent = 0
        while not stop.is_set():
            partition = sent % job.partitions
            stamp = Stamp(job.name, partition, sequences[partition])
            if send(producer, job, stamp, notes):
                sequences[partition] += 1
                sent += 1
            producer.poll(max(started + sent / job.records_per_second - time.monotonic(), 0))
            notes.keep()
        left = producer.flush(FLUSH_TIMEOUT_S)
        if left:
            notes.fatal(f"{left} records without a report")
        notes.keep()


def send(producer: confluent_kafka.Producer, job: CrashJob, stamp: Stamp, notes: Notes) -> bool:
    """Hand over one record; False if there is no room now."""
    try:
        producer.produce(
            job.topic,
            encode_payload(job.topic, stamp, job.padding),
            partition=stamp.partition,
            on_delivery=lambda error, message: notes.delivered(stamp, error, message),
        )
    except BufferError:
        producer.poll(0.05)
        return False
    except confluent_kafka.KafkaException as error:
        notes.fatal(str(error))
        notes.keep()
        raise
    return True


def main() -> None:
    """Do the job on the first line; the end of standard input ends it."""
    job = msgspec.json.decode(sys.stdin.readline().encode(), type=CrashJob)
    stop = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    run(job, stop)


if __name__ == "__main__":
    main()
