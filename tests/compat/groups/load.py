"""The producer beside a group: `python -m tests.compat.groups.load name=value ...`.

Record number n goes to partition n % partitions, so that an idempotent producer puts it at offset
n // partitions, and its value is n in digits. It prints how many are acknowledged, once a second,
and `done` at the end; with records=0 it writes until standard input ends.
"""

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import confluent_kafka

REPORT_S = 0.5
SLICE_S = 0.05
FLUSH_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Load:
    """What to write."""

    bootstrap: str
    topic: str
    partitions: int
    records: int
    per_second: float

    def arguments(self) -> list[str]:
        """Return the load as arguments of a command."""
        return [
            *(self.bootstrap, self.topic, str(self.partitions)),
            *(str(self.records), str(self.per_second)),
        ]


class Acknowledgements:
    """Counts what was acknowledged."""

    def __init__(self) -> None:
        self.count = 0
        self.failures: list[str] = []
        self._said_s = time.monotonic()

    def __call__(self, error: object, _: object) -> None:
        """Take one delivery report."""
        if error is not None:
            self.failures.append(str(error))
        self.count += 1

    def say(self) -> None:
        """Print the count, but not too often."""
        if time.monotonic() - self._said_s > REPORT_S:
            self._said_s = time.monotonic()
            print(self.count, flush=True)


def write(load: Load, stop: threading.Event) -> Acknowledgements:
    """Write at a steady rate until all are written or told to stop."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": load.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "message.timeout.ms": 300_000,
            "reconnect.backoff.max.ms": 1_000,
            "queue.buffering.max.messages": 500_000,
            "log_level": 2,
        }
    )
    acknowledged = Acknowledgements()
    started_s = time.monotonic()
    number = 0
    while not stop.is_set() and (load.records == 0 or number < load.records):
        due = int((time.monotonic() - started_s) * load.per_second) + 1
        due = min(due, load.records) if load.records else due
        while number < due:
            try:
                producer.produce(
                    load.topic,
                    b"%d" % number,
                    partition=number % load.partitions,
                    on_delivery=acknowledged,
                )
            except BufferError:
                break
            number += 1
        producer.poll(SLICE_S)
        acknowledged.say()
    left = producer.flush(FLUSH_TIMEOUT_S)
    if left:
        acknowledged.failures.append(f"{left} records without a report")
    return acknowledged


def main(arguments: Sequence[str]) -> int:
    """Write, and say `done`; 1 if anything failed."""
    bootstrap, topic, partitions, records, per_second = arguments
    load = Load(bootstrap, topic, int(partitions), int(records), float(per_second))
    stop = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    acknowledged = write(load, stop)
    if acknowledged.failures:
        print(f"failed {acknowledged.failures[:3]}", flush=True)
        return 1
    print(f"done {acknowledged.count}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
