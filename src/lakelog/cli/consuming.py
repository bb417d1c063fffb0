"""Reading records: partition by partition, from where to where the user said."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

from lakelog.cli.conversation import check
from lakelog.cli.offsets import At, Bound, OffsetRange, resolve
from lakelog.cli.topics import EARLIEST, LATEST, find_topic, list_offsets
from lakelog.model.failures import Corrupt
from lakelog.records.build import Record
from lakelog.records.columns import RecordColumns, decode_columns
from lakelog.records.header import BatchError, batch_crc, parse_header, split_batches
from lakelog.server.client import Client
from lakelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

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
class Reading:
    """What to read of one topic."""

    topic: str
    wanted: OffsetRange
    partitions: tuple[int, ...] = ()  # empty: all


@dataclass(slots=True)
class _Place:
    """Where the reading of one partition is, and where it ends."""

    next: int
    end: int | None

    @property
    def done(self) -> bool:
        return self.end is not None and self.next >= self.end


async def consume(client: Client, reading: Reading) -> AsyncIterator[list[Consumed]]:
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


async def _places(client: Client, reading: Reading, indexes: list[int]) -> dict[int, _Place]:
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
