"""One producer of the lake's acceptance run, a process of its own: many records, one codec."""

import json
import random
import sys
from dataclasses import dataclass

import confluent_kafka

POLL_EVERY = 10_000
FLUSH_S = 120.0


@dataclass(frozen=True, slots=True)
class LakeJob:
    """What one producer sends."""

    bootstrap: str
    topic: str
    codec: str
    idempotent: bool
    count: int
    seed: int


def value_of(source: random.Random, number: int) -> bytes | None:
    """A value of 0 to a few hundred bytes, now and then none."""
    if number % 997 == 0:
        return None
    row = {"number": number, "amount": source.randrange(1_000_000), "tag": source.choice("abcdef")}
    return json.dumps(row).encode() + b"x" * source.randrange(60)


def run(job: LakeJob) -> int:
    """Send everything; returns how many were not acknowledged."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "compression.type": job.codec,
            "enable.idempotence": job.idempotent,
            "acks": "all",
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
        }
    )
    source = random.Random(job.seed)
    failed = 0

    def told(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        nonlocal failed
        failed += error is not None

    for number in range(job.count):
        key = None if number % 13 == 0 else b"key-%d" % source.randrange(10_000)
        headers = [("trace", b"%d" % number), ("empty", None)] if number % 10 == 0 else None
        while True:
            try:
                producer.produce(
                    job.topic, value_of(source, number), key, headers=headers, on_delivery=told
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % POLL_EVERY == 0:
            producer.poll(0)
    left: int = producer.flush(FLUSH_S)
    return failed + left


if __name__ == "__main__":
    sys.exit(1 if run(LakeJob(**json.loads(sys.argv[1]))) else 0)
