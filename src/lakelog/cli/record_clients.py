"""Sending and reading records over one connection.

Sending: into batches, to their partitions, with what became of them. Records with a key go where
Kafka's own producers put them; those without go to one partition after another, a batch at a time.
Nothing is retried: the first failure ends the command, and what was acknowledged before it was
printed. TopicRead: partition by partition, from where to where the user said.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from lakelog.cli.command import check
from lakelog.cli.offsets import At, Bound, ReadBounds, resolve
from lakelog.cli.topics import EARLIEST, LATEST, find_topic, list_offsets
from lakelog.model.failures import Corrupt
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec
from lakelog.records.columns import RecordColumns, decode_columns
from lakelog.records.header import BatchError, batch_crc, parse_header, split_batches
from lakelog.server.client import Client
from lakelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lakelog.wire.messages.metadata import MetadataResponseTopic
from lakelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash that Java's clients put keys to partitions with."""
    mixed = (_SEED ^ len(data)) & _MASK
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        mixed = mixed * _MULTIPLIER & _MASK ^ word
    if len(data) > whole:
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    mixed = (mixed ^ mixed >> 13) * _MULTIPLIER & _MASK
    return mixed ^ mixed >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


BATCH_RECORDS_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 500_000
TIMEOUT_MS: Final = 30_000
ALL: Final = -1


@dataclass(frozen=True, slots=True)
class Produced:
    """Where a record is now."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Sending:
    """How records are sent."""

    topic: str
    partition: int | None = None  # None: by key
    codec: Codec = Codec.NONE


class Sender:
    """Sends records to one topic over one connection."""

    def __init__(self, client: Client, sending: Sending, topic: MetadataResponseTopic) -> None:
        self._client = client
        self._sending = sending
        self._topic = topic
        self._count = len(topic.partitions)
        self._next = 0

    @classmethod
    async def open(cls, client: Client, sending: Sending) -> "Sender":
        """Find the topic; a broker that creates topics by itself makes it now."""
        topic = await find_topic(client, sending.topic, create=True)
        return cls(client, sending, topic)

    async def send(self, records: Iterable[tuple[Record, int | None]]) -> list[Produced]:
        """Send records, each to the partition given or to its own; returns where each one is."""
        numbered = list(records)
        places: dict[int, list[int]] = {}
        self._next += 1
        for at, (record, partition) in enumerate(numbered):
            places.setdefault(self._partition(record, partition), []).append(at)
        found: list[Produced | None] = [None] * len(numbered)
        for partition, ats in places.items():
            batch = [numbered[at][0] for at in ats]
            produced = await self._send_batch(partition, batch)
            for at, each in zip(ats, produced, strict=True):
                found[at] = each
        return [each for each in found if each is not None]

    def _partition(self, record: Record, partition: int | None) -> int:
        chosen = self._sending.partition if partition is None else partition
        if chosen is not None:
            return chosen
        if record.key is None:
            return self._next % self._count
        return partition_of(record.key, self._count)

    async def _send_batch(self, partition: int, records: list[Record]) -> list[Produced]:
        batch = build_batch(records, BatchOptions(codec=self._sending.codec))
        data = PartitionProduceData(partition, memoryview(batch))
        topic = TopicProduceData(self._topic.topic_id, (data,), name=self._sending.topic)
        answer = await self._client.call(
            ProduceRequest(acks=ALL, timeout_ms=TIMEOUT_MS, topic_data=(topic,)), ProduceResponse
        )
        result = answer.responses[0].partition_responses[0]
        about = f"{self._sending.topic}, partition {partition}"
        check(result.error_code, result.error_message, about=about)
        stamped = result.log_append_time_ms
        return [
            Produced(
                partition,
                result.base_offset + number,
                record.timestamp_ms if stamped < 0 else stamped,
            )
            for number, record in enumerate(records)
        ]


def chunks(
    records: Iterable[tuple[Record, int | None]], *, records_max: int = BATCH_RECORDS_MAX
) -> Iterator[list[tuple[Record, int | None]]]:
    """The records in groups that make a batch of good size."""
    group: list[tuple[Record, int | None]] = []
    size_bytes = 0
    for record, partition in records:
        group.append((record, partition))
        size_bytes += len(record.key or b"") + len(record.value or b"")
        if len(group) >= records_max or size_bytes >= BATCH_BYTES_MAX:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


FETCH_BYTES_MAX: Final = 8 << 20
PARTITION_BYTES_MAX: Final = 1 << 20
DECOMPRESSED_BYTES_MAX: Final = 256 << 20
WAIT_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Consumed:
    """A record and where it stands."""

    partition: int
    offset: int
    record: Record


@dataclass(frozen=True, slots=True)
class TopicRead:
    """What to read of one topic."""

    topic: str
    wanted: ReadBounds
    partitions: tuple[int, ...] = ()  # empty: all


@dataclass(slots=True)
class _Place:
    """Where the reading of one partition is, and where it ends."""

    next: int
    end: int | None

    @property
    def done(self) -> bool:
        return self.end is not None and self.next >= self.end


async def consume(client: Client, reading: TopicRead) -> AsyncIterator[list[Consumed]]:
    """Records as they come; ends when the range does, if it has an end."""
    topic = await find_topic(client, reading.topic)
    known = sorted(partition.partition_index for partition in topic.partitions)
    indexes = sorted(set(reading.partitions)) or known
    places = await _places(client, reading, indexes)
    while True:
        open_places = {at: place for at, place in places.items() if not place.done}
        if not open_places:
            return
        wanted = tuple(
            FetchPartition(at, fetch_offset=place.next, partition_max_bytes=PARTITION_BYTES_MAX)
            for at, place in open_places.items()
        )
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            topics=(FetchTopic(topic.topic_id, wanted, topic=reading.topic),),
        )
        answer = await client.call(request, FetchResponse)
        check(answer.error_code, about=reading.topic)
        for each in answer.responses:
            for part in each.partitions:
                about = f"{reading.topic}, partition {part.partition_index}"
                check(part.error_code, about=about)
                if part.records is None:
                    continue
                assert isinstance(part.records, memoryview | bytes)
                place = places[part.partition_index]
                found = list(_records(part.partition_index, memoryview(part.records), place))
                if found:
                    yield found


async def _places(client: Client, reading: TopicRead, indexes: list[int]) -> dict[int, _Place]:
    name, wanted = reading.topic, reading.wanted
    firsts = await list_offsets(client, name, indexes, EARLIEST)
    ends = await list_offsets(client, name, indexes, LATEST)

    async def settled(bound: Bound) -> dict[int, int]:
        at = dict.fromkeys(indexes, -1)
        if isinstance(bound, At):
            at = await list_offsets(client, name, indexes, bound.timestamp_ms)
        return {
            index: resolve(
                bound,
                first=firsts[index],
                end=ends[index],
                at=at[index] if at[index] >= 0 else ends[index],
            )
            for index in indexes
        }

    starts = await settled(wanted.start)
    stops = await settled(wanted.end) if wanted.end is not None else {}
    return {index: _Place(starts[index], stops.get(index)) for index in indexes}


def _records(partition: int, data: memoryview, place: _Place) -> Iterator[Consumed]:
    """The records of whole batches from the place on; moves the place."""
    try:
        for batch in split_batches(data):
            columns = _columns(batch)
            base = columns.header.base_offset
            for at, delta in enumerate(columns.offset_deltas.tolist()):
                offset = base + delta
                wanted = offset >= place.next and (place.end is None or offset < place.end)
                if wanted and not columns.header.control:
                    yield Consumed(partition, offset, _record(columns, at))
            place.next = max(place.next, base + columns.header.last_offset_delta + 1)
    except BatchError as reason:
        raise Corrupt(f"the broker sent what is no batch: {reason}") from reason


def _columns(batch: memoryview) -> RecordColumns:
    header = parse_header(batch)
    if header.crc != batch_crc(batch):
        raise Corrupt(f"the batch at offset {header.base_offset} has a wrong checksum")
    return decode_columns(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)


def _record(columns: RecordColumns, at: int) -> Record:
    key, value = columns.key(at), columns.value(at)
    return Record(
        None if key is None else bytes(key),
        None if value is None else bytes(value),
        int(columns.timestamps_ms[at]),
        tuple(columns.headers(at)),
    )
