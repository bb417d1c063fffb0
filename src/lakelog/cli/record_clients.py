"""Sending records to their leaders and reading them there.

Sending: into batches, to their partitions, with what became of them. Records with a key go where
Kafka's own producers put them; those without go to one partition after another, a batch at a time.
Only what a leader that has moved did not take is sent again: the first other failure ends the
command, and what was acknowledged before it was printed.

Reading: partition by partition, from where to where the user said. All leaders are asked at the
same time; one that has nothing new holds the others back for `WAIT_MS` at most. With
`isolation.level=read_committed` the records of aborted transactions are left out.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from lakelog.cli.command import check, partition_text
from lakelog.cli.offsets import At, Bound, ReadBounds, resolve
from lakelog.cli.topics import find_topic
from lakelog.kafka_client.admin import (
    TopicPartition,
    by_leader,
    find_ends,
    list_offsets,
    pause,
)
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.failures import BrokerError, ClientFailure, TimedOut, Unreachable
from lakelog.kafka_client.metadata import NO_LEADER, TopicMetadata
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Corrupt
from lakelog.records.build import BatchOptions, Record, build_batch, partition_of
from lakelog.records.codecs import Codec
from lakelog.records.columns import RecordColumns, decode_columns
from lakelog.records.header import BatchError, batch_crc, parse_header, split_batches
from lakelog.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from lakelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

BATCH_RECORDS_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 500_000
TIMEOUT_MS: Final = 30_000
ALL: Final = -1
MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE})
"""What a broker says that does not lead the partition, or not yet: nothing was written."""


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
    """Sends records to the leaders of one topic."""

    def __init__(self, cluster: KafkaCluster, sending: Sending, topic: TopicMetadata) -> None:
        self._cluster = cluster
        self._sending = sending
        self._topic = topic
        self._count = len(topic.partitions)
        self._next = 0

    @classmethod
    async def open(cls, cluster: KafkaCluster, sending: Sending) -> "Sender":
        """Find the topic."""
        return cls(cluster, sending, await find_topic(cluster, sending.topic))

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
        place = TopicPartition(self._sending.topic, partition)
        deadline = self._cluster.deadline()
        while True:
            result = await self._ask_leader(place, batch)
            if result.error_code not in MOVED:
                break
            failure = BrokerError(result.error_code, partition_text(place), result.error_message)
            await pause(self._cluster, deadline, failure)
            self._topic = (await self._cluster.topics([place.topic], fresh=True))[place.topic]
        check(result.error_code, result.error_message, about=partition_text(place))
        stamped = result.log_append_time_ms
        return [
            Produced(
                partition,
                result.base_offset + number,
                record.timestamp_ms if stamped < 0 else stamped,
            )
            for number, record in enumerate(records)
        ]

    async def _ask_leader(self, place: TopicPartition, batch: bytes) -> PartitionProduceResponse:
        leader = leader_of(self._topic, place)
        if leader == NO_LEADER:
            return PartitionProduceResponse(error_code=ErrorCode.LEADER_NOT_AVAILABLE)
        data = PartitionProduceData(place.partition, memoryview(batch))
        topic = TopicProduceData(self._topic.topic_id, (data,), name=place.topic)
        request = ProduceRequest(acks=ALL, timeout_ms=TIMEOUT_MS, topic_data=(topic,))
        connection = await self._cluster.connection(leader)
        answer = await connection.call(request, ProduceResponse)
        return answer.responses[0].partition_responses[0]


def leader_of(topic: TopicMetadata, place: TopicPartition) -> int:
    """Who leads the partition; raises BrokerError if there is no such partition."""
    if place.partition not in topic.leaders:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partition_text(place))
    return topic.leaders[place.partition]


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


Fetched: TypeAlias = Sequence[FetchPartitionData] | ClientFailure
"""What one leader answered, or why it did not."""


async def consume(cluster: KafkaCluster, reading: TopicRead) -> AsyncIterator[list[Consumed]]:
    """Records as they come; ends when the range does, if it has an end."""
    topic = await find_topic(cluster, reading.topic)
    indexes = sorted(set(reading.partitions)) or list(topic.leaders)
    wanted = [TopicPartition(reading.topic, index) for index in indexes]
    for place in wanted:
        leader_of(topic, place)
    places = await _places(cluster, reading, wanted)
    deadline = cluster.deadline()
    while left := {at: place for at, place in places.items() if not place.done}:
        leaders = by_leader(left, {topic.name: topic})
        answers = await asyncio.gather(
            *(
                _fetch(cluster, topic, leader, {at: left[at] for at in led})
                for leader, led in leaders.items()
            )
        )
        failure: ClientFailure | None = None
        for answer in answers:
            if isinstance(answer, ClientFailure):
                failure = answer
                continue
            for part in answer:
                at = TopicPartition(reading.topic, part.partition_index)
                if part.error_code:
                    failure = BrokerError(part.error_code, partition_text(at))
                elif found := list(_records(part, places[at])):
                    yield found
        if failure is None:
            deadline = cluster.deadline()
            continue
        await pause(cluster, deadline, failure)
        topic = (await cluster.topics([reading.topic], fresh=True))[reading.topic]


async def _fetch(
    cluster: KafkaCluster, topic: TopicMetadata, leader: int, places: dict[TopicPartition, "_Place"]
) -> Fetched:
    if leader == NO_LEADER:
        about = partition_text(next(iter(places)))
        return BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, about)
    partitions = tuple(
        FetchPartition(
            at.partition, fetch_offset=place.next, partition_max_bytes=PARTITION_BYTES_MAX
        )
        for at, place in places.items()
    )
    request = FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES_MAX,
        isolation_level=int(cluster.settings.is_read_committed),
        topics=(FetchTopic(topic.topic_id, partitions, topic=topic.name),),
    )
    try:
        connection = await cluster.connection(leader)
        answer = await connection.call(request, FetchResponse)
    except (Unreachable, TimedOut) as failure:
        return failure
    if answer.error_code:
        return BrokerError(answer.error_code, topic.name)
    return [part for fetched in answer.responses for part in fetched.partitions]


async def _places(
    cluster: KafkaCluster, reading: TopicRead, places: list[TopicPartition]
) -> dict[TopicPartition, _Place]:
    deadline = cluster.deadline()
    bounds = await find_ends(cluster, places, deadline)

    async def settled(bound: Bound) -> dict[TopicPartition, int]:
        times = dict.fromkeys(places, -1)
        if isinstance(bound, At):
            asked = dict.fromkeys(places, bound.timestamp_ms)
            times = await list_offsets(cluster, asked, deadline)
        return {
            at: resolve(
                bound,
                first=bounds[at].start,
                end=bounds[at].end,
                at=times[at] if times[at] >= 0 else bounds[at].end,
            )
            for at in places
        }

    starts = await settled(reading.wanted.start)
    stops = await settled(reading.wanted.end) if reading.wanted.end is not None else {}
    return {at: _Place(starts[at], stops.get(at)) for at in places}


def _records(part: FetchPartitionData, place: _Place) -> Iterator[Consumed]:
    """The records of whole batches from the place on; moves the place."""
    assert isinstance(part.records, memoryview | bytes | None)
    aborted = _Aborted(part.aborted_transactions or ())
    try:
        for batch in split_batches(memoryview(part.records or b"")):
            columns = _columns(batch)
            base = columns.header.base_offset
            is_hidden = aborted.holds(columns) or columns.header.control
            for at, delta in enumerate(columns.offset_deltas.tolist()):
                offset = base + delta
                wanted = offset >= place.next and (place.end is None or offset < place.end)
                if wanted and not is_hidden:
                    yield Consumed(part.partition_index, offset, _record(columns, at))
            place.next = max(place.next, base + columns.header.last_offset_delta + 1)
    except BatchError as reason:
        raise Corrupt(f"the broker sent what is no batch: {reason}") from reason


class _Aborted:
    """Which batches of an answer belong to aborted transactions; they are shown in order.

    From its first offset on, a producer's transactional batches are aborted until its next marker.
    """

    def __init__(self, transactions: Sequence[AbortedTransaction]) -> None:
        self._coming = sorted(transactions, key=lambda aborted: aborted.first_offset, reverse=True)
        self._producers: set[int] = set()

    def holds(self, columns: RecordColumns) -> bool:
        """Whether this batch, the next one, is aborted."""
        header = columns.header
        end = header.base_offset + header.last_offset_delta + 1
        while self._coming and self._coming[-1].first_offset < end:
            self._producers.add(self._coming.pop().producer_id)
        if header.control:
            self._producers.discard(header.producer_id)
        return header.transactional and header.producer_id in self._producers


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
