"""A process that has just been started reads its first records, and says what that cost.

`python -m bench.cold_client LIBRARY BOOTSTRAP TOPIC` prints the CPU seconds of the process from its
start to its first records. Nothing but the library is imported, and only where it is used.
"""

import sys
import time
from collections.abc import Callable

PEERS = ("confluent", "aiokafka")
POLL_MS = 1_000
POLL_S = POLL_MS / 1_000


def report() -> None:
    """The first records are there; what closing costs does not count."""
    print(time.process_time(), flush=True)


def by_lakelog(bootstrap: str, topic: str, *, ordered: bool) -> None:
    """Ours: the first batch of Arrow that is not empty."""
    from lakelog.client import ConsumerManager, SourceTopic  # noqa: PLC0415 - one library a process

    sources = [SourceTopic.from_earliest(topic)]
    with ConsumerManager({"bootstrap.servers": bootstrap}, sources, ordered=ordered) as manager:
        while not manager.poll(POLL_MS).num_rows:
            pass
        report()


def by_confluent(bootstrap: str, topic: str) -> None:
    """librdkafka's first messages, of a partition that is assigned."""
    from confluent_kafka import (  # noqa: PLC0415 - one library a process
        OFFSET_BEGINNING,
        Consumer,
        TopicPartition,
    )

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-cold"})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions])
    while not consumer.consume(10_000, timeout=POLL_S):
        pass
    report()
    consumer.close()


def by_aiokafka(bootstrap: str, topic: str) -> None:
    """The asyncio client's first records."""
    import asyncio  # noqa: PLC0415 - only this library needs it

    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415 - one library a process

    async def consume() -> None:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            while not await consumer.getmany(timeout_ms=POLL_MS):
                pass
            report()
        finally:
            await consumer.stop()

    asyncio.run(consume())


LIBRARIES: dict[str, Callable[[str, str], None]] = {
    "ordered": lambda bootstrap, topic: by_lakelog(bootstrap, topic, ordered=True),
    "unordered": lambda bootstrap, topic: by_lakelog(bootstrap, topic, ordered=False),
    "confluent": by_confluent,
    "aiokafka": by_aiokafka,
}


if __name__ == "__main__":
    LIBRARIES[sys.argv[1]](*sys.argv[2:])
