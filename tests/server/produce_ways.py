"""One conversation through both ways of Produce: rows, and one request at a time.

The same bytes go to two brokers that differ in nothing else. What comes back must be the same to
the byte, and so must be what is in the log and whether the connection was closed.

    python -m tests.server.produce_ways --requests 1000000
"""

import argparse
import asyncio
import functools
import logging
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c
from prometheus_client import Counter
from tests.broker.data_stage import DataStage, batch, topic_id

from lakelog.broker.api import dispatch
from lakelog.broker.produce_rows import ProduceRows
from lakelog.clock import Tasks
from lakelog.model.failures import OutcomeUnknown, Unavailable
from lakelog.records.build import BatchOptions
from lakelog.records.codecs import Codec
from lakelog.records.header import ATTRIBUTES_OFFSET, CRC_OFFSET, LENGTH_PREFIX_BYTES
from lakelog.server.connection import ClientConnection
from lakelog.server.options import ServerOptions
from lakelog.server.port import PortState, RateLimitedLog
from lakelog.testing.simulation import simulate
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.framing import encode_request
from lakelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from lakelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

NOW_MS = 1_794_717_942_000
TOPICS = {
    "plain": {},
    "a-name-that-is-longer-than-those-of-most-other-topics": {},
    "appended": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact"},
    "small": {"max.message.bytes": "300"},
    "strict": {"message.timestamp.before.max.ms": "1000"},
}
QUIET_TOPIC = "quiet"
"""Nobody writes to it, so what a fetch of it is told does not depend on when it is answered."""

PARTITIONS = 3
TURNS_MAX = 10_000
QUIET_TURNS = 12
"""Turns of the loop after which nothing more comes of what was received."""


class Transport(asyncio.Transport):
    """What a connection sends, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.closed = False
        self.reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.sent += data

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    abort = close


@dataclass(frozen=True)
class Conversation:
    """What a client sends, cut as it arrives, and what the log does meanwhile."""

    pieces: tuple[bytes, ...]
    requests: int
    held: bool = False
    """The log commits only when all was sent."""
    failure: int = 0
    """1, 2: every append fails, with an unknown or a certain outcome."""
    full: bool = False
    """There is no room for more producers."""


@dataclass
class Heard:
    """What came back, and what is in the log."""

    sent: bytes
    closed: bool
    deadlines_s: tuple[float, ...]
    stored: dict[int, list[tuple[int, int, bytes]]] = field(default_factory=dict)


def stage_of(conversation: Conversation) -> DataStage:
    """A broker with some topics."""
    stage = DataStage()
    for name, configs in TOPICS.items():
        stage.topic(name, PARTITIONS, configs=configs)
    stage.topic(QUIET_TOPIC)
    stage.log.commit_at_once = not (conversation.held or conversation.failure)
    stage.log.producers_full = conversation.full
    return stage


async def converse(conversation: Conversation, *, rows: bool) -> tuple[Heard, int]:
    """Let one broker answer; also how many requests became rows."""
    stage = stage_of(conversation)
    tasks = Tasks()
    port = PortState(
        functools.partial(dispatch, stage.broker),
        ServerOptions(),
        stage.clock,
        stage.metrics,
        tasks,
        asyncio.get_running_loop(),
        RateLimitedLog(logging.getLogger("tests.produce_ways"), stage.clock),
        Counter("failures", "-", registry=None),
        Counter("stalled", "-", registry=None),
    )
    taken = CountedRows(stage) if rows else None
    port.produce_rows = taken
    connection, transport = ClientConnection(port), Transport()
    connection.connection_made(transport)
    await asyncio.sleep(0)
    for piece in conversation.pieces:
        await _receive(connection, transport, piece)
    await _settle(stage, conversation, transport)
    stored = {
        stream: [(one.start, one.end, bytes(one.data)) for one in batches]
        for stream, batches in stage.log.stored.items()
    }
    deadlines_s = tuple(stage.log.deadlines_s)
    heard = Heard(bytes(transport.sent), transport.closed, deadlines_s, stored)
    connection.connection_lost(None)
    await tasks.close()
    return heard, taken.requests if taken is not None else 0


class CountedRows(ProduceRows):
    """Counts what takes this way."""

    def __init__(self, stage: DataStage) -> None:
        super().__init__(stage.broker)
        self.requests = 0

    def take(self, run: Any) -> Any:
        plain = super().take(run)
        self.requests += len(plain) if plain is not None else 0
        return plain


async def _receive(connection: ClientConnection, transport: Transport, piece: bytes) -> None:
    left = memoryview(piece)
    for _ in range(TURNS_MAX):
        if not left or transport.closed or connection.ended:
            break
        if not transport.reading:
            await asyncio.sleep(0.001)
            continue
        room = connection.get_buffer(-1)
        size = min(len(left), len(room))
        room[:size] = left[:size]
        left = left[size:]
        connection.buffer_updated(size)
    # A request that closes the connection does so some turns later (acks=0 and a refused batch).
    # How many of the next pieces come before that must not depend on the way.
    for _ in range(QUIET_TURNS):
        await asyncio.sleep(0)


async def _settle(stage: DataStage, conversation: Conversation, transport: Transport) -> None:
    """Turn the loop until nothing more comes."""
    quiet, before = 0, -1
    while quiet < QUIET_TURNS:
        await asyncio.sleep(0)
        quiet = quiet + 1 if len(transport.sent) == before and not stage.log.held else 0
        before = len(transport.sent)
        if conversation.failure:
            held, stage.log.held = stage.log.held, []
            for _, _, settle in held:
                late = OutcomeUnknown("the request's time is over")
                settle(late if conversation.failure == 1 else Unavailable("the stores are away"))
        elif conversation.held:
            stage.log.commit_held()


def heard(conversation: Conversation, *, rows: bool) -> tuple[Heard, int]:
    """The same in virtual time: a connection that rests between reads costs nothing."""
    return simulate(lambda _: converse(conversation, rows=rows), seed=0)[0]


def conversation_of(seed: int) -> Conversation:
    """A conversation by chance: mostly what clients send, some of it broken."""
    chance = random.Random(seed)
    frames = list(frames_of(chance))
    data = b"".join(frames)
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 0, 1, 3, 9))))
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    mood = chance.random()
    return Conversation(
        tuple(pieces),
        len(frames),
        held=mood < 0.2,
        failure=chance.choice((1, 2)) if mood > 0.9 else 0,
        full=0.85 < mood < 0.9,
    )


def frames_of(chance: random.Random) -> Iterator[bytes]:
    """What one client sends."""
    version = chance.choice((3, 4, 5, 7, 8, 8, 9, 9, 10, 11, 12, 13))
    sequences: dict[tuple[str, int, int], int] = {}
    wildness = chance.choice((0.0, 0.0, 0.05, 0.3))
    for number in range(chance.choice((1, 2, 8, 30))):
        if chance.random() < 0.03:
            yield _fetch(number)
            continue
        if chance.random() < 0.02:
            version = chance.randrange(3, 14)
        frame = bytearray(_produce(chance, number, version, sequences, wildness))
        if chance.random() < wildness / 3:
            frame[chance.randrange(4, len(frame))] ^= 1 << chance.randrange(8)
        yield bytes(frame)


def _produce(
    chance: random.Random,
    number: int,
    version: int,
    sequences: dict[tuple[str, int, int], int],
    wildness: float,
) -> bytes:
    names = chance.sample(sorted(TOPICS), chance.choice((1, 1, 1, 2)))
    if chance.random() < wildness / 3:
        names.append(chance.choice(("unknown", names[0], "__consumer_offsets", "")))
    topics = []
    for name in names:
        count = chance.choice((1, 1, 1, 2, 3))
        indexes = chance.sample(range(PARTITIONS), count)
        if chance.random() < wildness / 3:
            indexes.append(chance.choice((indexes[0], PARTITIONS, -1)))
        data = tuple(
            PartitionProduceData(index, _batch(chance, name, index, sequences, wildness))
            for index in indexes
        )
        topics.append(TopicProduceData(topic_id(name), data, name))
    wild = chance.random() < wildness / 4
    request = ProduceRequest(
        transactional_id="tx" if wild and chance.random() < 0.3 else None,
        acks=chance.choice((0, 2, -7)) if wild else chance.choice((1, -1)),
        timeout_ms=30_000 if chance.random() < 0.95 else chance.choice((0, -1, 5_000_000)),
        topic_data=tuple(topics),
    )
    client = chance.choice(("client", "", None, "ü"))
    parts = encode_request(APIS[ApiKey.PRODUCE], version, number, client, request)
    return b"".join(bytes(part) for part in parts)


def _batch(
    chance: random.Random,
    name: str,
    index: int,
    sequences: dict[tuple[str, int, int], int],
    wildness: float,
) -> memoryview | None:
    """One batch for a partition, broken now and then."""
    size_max = 400 if name == "small" and chance.random() < wildness else 60
    values = [bytes(chance.randrange(1, size_max)) for _ in range(chance.choice((1, 2, 3)))]
    producer = chance.choice((-1, -1, 1, 2))
    options = BatchOptions(codec=chance.choice((Codec.NONE,) * 6 + tuple(Codec)))
    if producer >= 0:
        place = (name, index, producer)
        sequence = sequences.get(place, 0)
        again = chance.random() < 0.1
        sent = max(0, sequence - len(values)) if again else sequence
        sequences[place] = max(sequence, sent + len(values))
        options = BatchOptions(
            codec=options.codec, producer_id=producer, producer_epoch=0, base_sequence=sent
        )
    wild = chance.random() < wildness
    key = None if wild and chance.random() < 0.3 else b"k"
    timestamp_ms = chance.choice((-1, 0, NOW_MS - 5_000, NOW_MS + 10**8)) if wild else NOW_MS
    made = bytearray(batch(*values, timestamp_ms=timestamp_ms, options=options, key=key))
    if not wild:
        return memoryview(made)
    what = chance.random()
    if what < 0.1:
        return None
    if what < 0.2:
        return memoryview(made[: chance.randrange(len(made))])
    if what < 0.3:
        return memoryview(made + made)
    if what < 0.4:
        made[chance.randrange(len(made))] ^= 1 << chance.randrange(8)
    elif what < 0.5:
        made += b"\0"
        made[8:12] = (len(made) - LENGTH_PREFIX_BYTES).to_bytes(4, "big")
        _sum_up(made)
    elif what < 0.9:
        _falsify(chance, made)
    return memoryview(made)


def _falsify(chance: random.Random, made: bytearray) -> None:
    """Change a field of the header, and the CRC with it."""
    start, size = chance.choice(
        ((21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (53, 4), (57, 4))
    )
    kept = int.from_bytes(made[start : start + size], "big")
    value = chance.choice(
        (0, kept + 1, kept - 1, (1 << 8 * size) - 1, kept ^ 1 << chance.randrange(6))
    )
    made[start : start + size] = (value % (1 << 8 * size)).to_bytes(size, "big")
    _sum_up(made)


def _sum_up(made: bytearray) -> None:
    made[CRC_OFFSET:ATTRIBUTES_OFFSET] = crc32c(made[ATTRIBUTES_OFFSET:]).to_bytes(4, "big")


def _fetch(number: int) -> bytes:
    topics = (FetchTopic(topic=QUIET_TOPIC, partitions=(FetchPartition(0, fetch_offset=0),)),)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=topics)
    parts = encode_request(APIS[ApiKey.FETCH], 8, number, "client", request)
    return b"".join(bytes(part) for part in parts)


def _compare(first: int, wanted: int) -> int:
    requests = rows = 0
    for seed in range(first, sys.maxsize):
        if requests >= wanted:
            break
        conversation = conversation_of(seed)
        by_rows, taken = heard(conversation, rows=True)
        one_by_one, _ = heard(conversation, rows=False)
        if by_rows != one_by_one:
            print(f"seed {seed}: the two ways differ")
            return 1
        requests += conversation.requests
        rows += taken
    print(f"{requests:,} requests, {rows:,} of them as rows: every answer alike")
    return 0


def main() -> int:
    """Compare so many requests."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    return _compare(given.first, given.requests)


if __name__ == "__main__":
    sys.exit(main())
