"""Real clients against our broker process: the small form of `python -m tests.compat`.

`LAKELOG_TEST_BOOTSTRAP=host:port` runs the same tests against another broker.
"""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
from bench.ours import start_ours
from tests.compat.clients import Consuming, Producing
from tests.compat.matrix import OK, Matrix, run_row
from tests.compat.python_clients import (
    AiokafkaConsumer,
    AiokafkaProducer,
    ConfluentConsumer,
    ConfluentProducer,
    KafkaPythonConsumer,
    KafkaPythonProducer,
    kafka_python_codecs,
)

RECORDS = 1_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    given = os.environ.get("LAKELOG_TEST_BOOTSTRAP")
    if given:
        yield given, int(given.rpartition(":")[2])
        return
    broker = start_ours(tmp_path_factory.mktemp("compat") / "data")
    try:
        yield broker.bootstrap, broker.port
    finally:
        broker.stop()


@pytest.mark.parametrize(
    "producer",
    [
        ConfluentProducer(),
        ConfluentProducer(idempotent=True),
        AiokafkaProducer(),
        KafkaPythonProducer(),
    ],
    ids=lambda producer: str(producer.name),
)
def test_every_consumer_reads_what_a_producer_wrote_byte_by_byte(
    address: tuple[str, int], producer: Producing
) -> None:
    # kafka-python needs extra libraries for some codecs: all clients here use those it has.
    producer.ability = replace(producer.ability, codecs=kafka_python_codecs())
    consumers: list[Consuming] = [ConfluentConsumer(), AiokafkaConsumer(), KafkaPythonConsumer()]
    matrix = Matrix()
    run_row(address, producer, consumers, RECORDS, (matrix, print))
    assert matrix.findings == []
    assert list(matrix.cells.values()) == [OK] * len(consumers)


def test_every_codec_round_trips_through_the_clients_that_carry_all(
    address: tuple[str, int],
) -> None:
    consumers: list[Consuming] = [ConfluentConsumer(), AiokafkaConsumer()]
    matrix = Matrix()
    run_row(address, ConfluentProducer(), consumers, RECORDS, (matrix, print))
    assert matrix.findings == []
    assert list(matrix.cells.values()) == [OK] * len(consumers)
