"""`python -m tests.compat`: real clients, every producer against every consumer, byte by byte."""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from bench.broker import StartError
from bench.ours import start_ours
from bench.peer import PeerAbsentError, find_peer, start_peer
from tests.compat import kafkajs
from tests.compat.clients import Consuming, Producing
from tests.compat.console import ConsoleConsumer, ConsoleProducer
from tests.compat.kafkajs import KafkajsProducer
from tests.compat.kcat import KcatConsumer, KcatProducer
from tests.compat.matrix import Matrix, run_matrix, table
from tests.compat.python_clients import (
    AiokafkaConsumer,
    AiokafkaProducer,
    ConfluentConsumer,
    ConfluentProducer,
    KafkaPythonConsumer,
    KafkaPythonProducer,
)


def all_producers() -> list[Producing]:
    """Every client that writes."""
    return [
        ConfluentProducer(),
        ConfluentProducer(idempotent=True),
        AiokafkaProducer(),
        KafkaPythonProducer(),
        KcatProducer(),
        KcatProducer(idempotent=True),
        KafkajsProducer(),
        ConsoleProducer(),
    ]


def all_consumers() -> list[Consuming]:
    """Every client that reads by assignment."""
    return [
        ConfluentConsumer(),
        AiokafkaConsumer(),
        KafkaPythonConsumer(),
        KcatConsumer(),
        ConsoleConsumer(),
    ]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="records per producer")
    parser.add_argument("--bootstrap", help="use a running broker, host:port")
    parser.add_argument("--peer", action="store_true", help="start Apache Kafka instead of ours")
    parser.add_argument("--producers", default="", help="only names that contain one of these")
    parser.add_argument("--consumers", default="", help="only names that contain one of these")
    return parser.parse_args(arguments)


@contextmanager
def broker(options: argparse.Namespace) -> Iterator[str]:
    """Lend the address of the broker that the command line asks for."""
    if options.bootstrap:
        yield options.bootstrap
        return
    with tempfile.TemporaryDirectory(prefix="lakelog-compat-") as folder:
        data = Path(folder, "data")
        running = start_peer(find_peer(), data) if options.peer else start_ours(data)
        try:
            yield running.bootstrap
        finally:
            running.stop()


Client = TypeVar("Client", Producing, Consuming)


def chosen(clients: list[Client], wanted: str) -> list[Client]:
    """Return the clients whose names contain one of the wanted words; all if none is given."""
    words = [word for word in wanted.split(",") if word]
    return [each for each in clients if not words or any(word in each.name for word in words)]


def main(arguments: Sequence[str]) -> int:
    """Run the matrix and print it; 1 if anything differs."""
    options = parse(arguments)
    producers = chosen(all_producers(), options.producers)
    consumers = chosen(all_consumers(), options.consumers)
    try:
        with broker(options) as bootstrap:
            port = int(bootstrap.rpartition(":")[2])
            address = (bootstrap, port)
            matrix = run_matrix(address, producers, consumers, options.records, print)
    except (PeerAbsentError, StartError) as error:
        print(f"no broker: {error}")
        return 2
    matrix.skipped["kafkajs consumer"] = kafkajs.CONSUMER_SKIPPED
    return finish(matrix, producers, consumers)


def finish(matrix: Matrix, producers: list[Producing], consumers: list[Consuming]) -> int:
    """Print the table and return the exit code."""
    print()
    print(table(matrix, producers, consumers))
    return 0 if matrix.good() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
