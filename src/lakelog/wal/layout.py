"""WAL objects: their ids and keys, and their bytes, version 1 (docs/formats.md).

An id has the layout of a UUID of version 7: 48 bits of milliseconds, then chance. Its order is the
order of time, which is what a Horizon judges by (RFC 0001). The date in an object's key comes
from the id alone, so that a key can be made from an id by anybody, at any time.

All integers are big-endian:

    header   magic "DRAYWO1", version u16, WAL id 16 bytes, domain u32, created i64 (milliseconds),
             chunk count u32, position of the chunk index u64: 49 bytes
    index    one entry per chunk, sorted by stream id: stream u64, position u64, length u32,
             records u32, batches u32, least and greatest timestamp i64: 44 bytes each
    chunks   in the index's order, without gap: per batch its length u32 and its bytes as accepted
    footer   CRC-32C of all that precedes: 4 bytes, always written

The index stands directly behind the header. Anything else, also what a lenient reader could make
sense of, is `Corrupt`: there is one encoding of every object.

A run is neighbouring batches of one stream inside a WAL object, each behind its length. An index
entry names byte runs, and a run is what a ranged read brings back. Its bytes vouch for themselves:
the length stands twice (before the batch and in it), base offset and magic have the one value that
acceptance allows, and the batch's CRC-32C covers everything from the attributes on. So every single
flipped bit and every cut is seen, with one exception that cannot matter: the partition leader
epoch, which nobody reads and which is written anew whenever a batch is served.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Final, TypeAlias
from uuid import UUID

import msgspec
from crc32c import crc32c

from lakelog.model.failures import Corrupt
from lakelog.model.ids import DomainId, StreamId, WalId

WAL_ID_BYTES: Final = 16
TOKEN_BYTES: Final = 10
TIME_MS_END: Final = 253_402_300_800_000
"""The first millisecond of the year 10000, which no key's date can name."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ZONE: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}")
_KEY: Final = re.compile(
    r"wal/v1/zone=(?P<zone>[^/]+)/domain=(?P<domain>0|[1-9][0-9]{0,9})"
    r"/date=[0-9]{4}/[0-9]{2}/[0-9]{2}/(?P<id>[0-9a-f-]{36})\.wo"
)


@dataclass(frozen=True, slots=True)
class WalPlace:
    """What an object's key says."""

    zone: str
    domain: DomainId
    wal_id: WalId


def make_wal_id(time_ms: int, token: bytes) -> WalId:
    """The id of an object closed at `time_ms`; the token is ten bytes of chance."""
    assert 0 <= time_ms < TIME_MS_END, time_ms
    assert len(token) == TOKEN_BYTES, len(token)
    chance = bytearray(token)
    chance[0] = 0x70 | (chance[0] & 0x0F)
    chance[2] = 0x80 | (chance[2] & 0x3F)
    return WalId(time_ms.to_bytes(6, "big") + chance)


def wal_id_time_ms(wal_id: WalId) -> int:
    """When the object was closed, by the clock of its writer."""
    return int.from_bytes(wal_id[:6], "big")


def object_key(zone: str, domain: DomainId, wal_id: WalId) -> str:
    """Where the object lies, below the cluster's prefix."""
    assert ZONE.fullmatch(zone), zone
    assert domain >= 0, domain
    date = _EPOCH + timedelta(milliseconds=wal_id_time_ms(wal_id))
    day = f"{date.year:04}/{date.month:02}/{date.day:02}"
    return f"wal/v1/zone={zone}/domain={domain}/date={day}/{UUID(bytes=bytes(wal_id))}.wo"


def checked_object_key(zone: str, domain: DomainId, wal_id: WalId) -> str | None:
    """The key of what a stranger calls an object, or None when no object is called that."""
    if not ZONE.fullmatch(zone) or len(wal_id) != WAL_ID_BYTES:
        return None
    if wal_id_time_ms(wal_id) >= TIME_MS_END:
        return None
    key = object_key(zone, domain, wal_id)
    return key if parse_object_key(key) is not None else None


def parse_object_key(key: str) -> WalPlace | None:
    """What the key says, or None when it is not exactly what `object_key` makes."""
    match = _KEY.fullmatch(key)
    if match is None or not ZONE.fullmatch(match["zone"]):
        return None
    try:
        wal_id = WalId(UUID(match["id"]).bytes)
    except ValueError:
        return None
    version_7 = wal_id[6] >> 4 == 7 and wal_id[8] >> 6 == 2
    if not version_7 or wal_id_time_ms(wal_id) >= TIME_MS_END:
        return None
    place = WalPlace(match["zone"], DomainId(int(match["domain"])), wal_id)
    return place if object_key(place.zone, place.domain, wal_id) == key else None


PREFIX: Final = Struct(">I")
"""A batch's length, before it."""

BATCH_HEADER_BYTES: Final = 61
RECORD_COUNT: Final = Struct(">i")
RECORD_COUNT_OFFSET: Final = 57

_HEAD: Final = Struct(">IqiibI")
"""Prefix, then the batch's base offset, length, leader epoch, magic and CRC."""

_LENGTH_PREFIX_BYTES: Final = 12
_ATTRIBUTES_OFFSET: Final = 21
_MAGIC: Final = 2


def split_run(run: memoryview) -> list[memoryview]:
    """The batches of a run by their lengths alone, for bytes that were verified before."""
    return _split(run, verify=False)


def verify_run(run: memoryview) -> list[memoryview]:
    """The batches of a run, each one checked against its CRC; `Corrupt` says what is wrong."""
    return _split(run, verify=True)


def _split(run: memoryview, *, verify: bool) -> list[memoryview]:
    batches = []
    position = 0
    while position < len(run):
        start = position + PREFIX.size
        if position + _HEAD.size > len(run):
            raise Corrupt(f"the run ends within the batch at byte {position}")
        size, base_offset, length, _, magic, crc = _HEAD.unpack_from(run, position)
        position = start + size
        if size < BATCH_HEADER_BYTES or length + _LENGTH_PREFIX_BYTES != size:
            raise Corrupt(f"the batch at byte {start} has lengths {size} and {length}")
        if position > len(run):
            raise Corrupt(f"the run ends within the batch at byte {start}")
        if base_offset != 0 or magic != _MAGIC:
            raise Corrupt(f"the batch at byte {start} has offset {base_offset}, magic {magic}")
        if verify and crc32c(run[start + _ATTRIBUTES_OFFSET : position]) != crc:
            raise Corrupt(f"the CRC-32C of the batch at byte {start} does not match")
        batches.append(run[start:position])
    return batches


MAGIC: Final = b"DRAYWO1"
VERSION: Final = 1
HEADER: Final = Struct(">7sH16sIqIQ")
INDEX_ENTRY: Final = Struct(">QQIIIqq")
FOOTER: Final = Struct(">I")

UINT32_MAX: Final = (1 << 32) - 1
UINT64_MAX: Final = (1 << 64) - 1

Buffer: TypeAlias = bytes | bytearray | memoryview

JOINED_BYTES_MAX: Final = 8192
"""Batches that are smaller on average are copied into one part: that costs less than a checksum
and a place in `writev` for each."""


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """The batches of one stream that go into an object, in the order they were accepted."""

    stream_id: StreamId
    batches: Sequence[Buffer]
    record_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int


class ChunkPlace(msgspec.Struct, frozen=True, gc=False):
    """Where a chunk's body lies in the object: the bytes [start, end).

    `batch_starts` are the positions of the batches' length prefixes, so batch `i` with its prefix
    takes the bytes from its start to the next one's, and any neighbours together are a run.
    """

    stream_id: StreamId
    start: int
    end: int
    batch_starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EncodedObject:
    """An object ready to be put: its parts, one after another, are its bytes."""

    wal_id: WalId
    parts: tuple[Buffer, ...]
    size_bytes: int
    places: tuple[ChunkPlace, ...]


class ChunkEntry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a stored object's index; the body is the bytes [start, end)."""

    stream_id: StreamId
    start: int
    end: int
    record_count: int
    batch_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """What header and index of a stored object say."""

    wal_id: WalId
    domain: DomainId
    created_ms: int
    chunks: tuple[ChunkEntry, ...]


@dataclass(frozen=True, slots=True)
class WalObject:
    """A stored object that was verified from its first byte to its last."""

    wal_id: WalId
    domain: DomainId
    created_ms: int
    chunks: tuple[ChunkEntry, ...]
    batches: tuple[tuple[memoryview, ...], ...]
    """For every chunk, its batches as they were accepted."""


def encode(
    wal_id: WalId, domain: DomainId, created_ms: int, chunks: Sequence[Chunk]
) -> EncodedObject:
    """The object of these chunks, one per stream, in any order; batches are not copied."""
    assert len(wal_id) == WAL_ID_BYTES, len(wal_id)
    assert 0 <= domain <= UINT32_MAX, domain
    assert chunks, "an object without chunks has no reader"
    ordered = sorted(chunks, key=lambda chunk: chunk.stream_id)
    position = HEADER.size + len(ordered) * INDEX_ENTRY.size
    head = bytearray(position)
    HEADER.pack_into(
        head, 0, MAGIC, VERSION, bytes(wal_id), domain, created_ms, len(ordered), HEADER.size
    )
    parts: list[Buffer] = [head]
    places = []
    previous = -1
    for number, chunk in enumerate(ordered):
        assert previous < chunk.stream_id <= UINT64_MAX, (previous, chunk.stream_id)
        previous = chunk.stream_id
        place = _append_chunk(parts, chunk, position)
        INDEX_ENTRY.pack_into(
            head,
            HEADER.size + number * INDEX_ENTRY.size,
            chunk.stream_id,
            place.start,
            place.end - place.start,
            chunk.record_count,
            len(chunk.batches),
            chunk.min_timestamp_ms,
            chunk.max_timestamp_ms,
        )
        places.append(place)
        position = place.end
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    parts.append(FOOTER.pack(crc))
    return EncodedObject(wal_id, tuple(parts), position + FOOTER.size, tuple(places))


def _append_chunk(parts: list[Buffer], chunk: Chunk, start: int) -> ChunkPlace:
    assert chunk.batches, f"no batch of stream {chunk.stream_id}"
    assert chunk.min_timestamp_ms <= chunk.max_timestamp_ms, chunk.stream_id
    starts = []
    pieces: list[Buffer] = []
    position = start
    records = 0
    for batch in chunk.batches:
        size = len(batch)
        assert size >= BATCH_HEADER_BYTES, size
        starts.append(position)
        pieces += (PREFIX.pack(size), batch)
        records += RECORD_COUNT.unpack_from(batch, RECORD_COUNT_OFFSET)[0]
        position += PREFIX.size + size
    assert records == chunk.record_count, (records, chunk.record_count)
    assert position - start <= UINT32_MAX, position - start
    if position - start < JOINED_BYTES_MAX * len(starts):
        parts.append(b"".join(pieces))
    else:
        parts += pieces
    return ChunkPlace(chunk.stream_id, start, position, tuple(starts))


def decode(data: memoryview, *, wal_id: WalId | None = None) -> WalObject:
    """Verify a whole object and find its batches; with `wal_id`, also that it is that one."""
    if len(data) < HEADER.size + FOOTER.size:
        raise Corrupt(f"{len(data)} bytes are no WAL object")
    end = len(data) - FOOTER.size
    if FOOTER.unpack_from(data, end)[0] != crc32c(data[:end]):
        raise Corrupt("the WAL object's CRC-32C does not match")
    head = decode_head(data, size_bytes=len(data), wal_id=wal_id)
    batches = tuple(_decode_chunk(data, chunk) for chunk in head.chunks)
    return WalObject(head.wal_id, head.domain, head.created_ms, head.chunks, batches)


def decode_head(data: memoryview, *, size_bytes: int, wal_id: WalId | None = None) -> ObjectHead:
    """Header and index of an object of that size, which `data` begins with.

    They are checked against each other and the size; nothing proves the bytes themselves.
    """
    if len(data) < HEADER.size:
        raise Corrupt(f"{len(data)} bytes are no WAL object's header")
    magic, version, found_id, domain, created_ms, count, index_start = HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION or index_start != HEADER.size:
        raise Corrupt(f"not a WAL object of version 1: {magic!r}, {version}, {index_start}")
    if wal_id is not None and found_id != wal_id:
        raise Corrupt(f"the object is {found_id.hex()} and not {wal_id.hex()}")
    chunks = _decode_index(data, count, size_bytes - FOOTER.size)
    return ObjectHead(WalId(found_id), DomainId(domain), created_ms, chunks)


def _decode_index(data: memoryview, count: int, end: int) -> tuple[ChunkEntry, ...]:
    """The entries, whose bodies must fill the bytes between index and footer exactly."""
    body_start = HEADER.size + count * INDEX_ENTRY.size
    if count == 0 or body_start > min(end, len(data)):
        raise Corrupt(f"an index of {count} chunks does not fit")
    entries = []
    position, previous = body_start, -1
    for fields in INDEX_ENTRY.iter_unpack(data[HEADER.size : body_start]):
        stream_id, start, length, records, batches, least_ms, greatest_ms = fields
        if stream_id <= previous:
            raise Corrupt(f"stream {stream_id} stands behind stream {previous}")
        if start != position or length > end - start:
            raise Corrupt(f"the chunk of stream {stream_id} is at {start}, {length} bytes long")
        if least_ms > greatest_ms:
            raise Corrupt(f"the timestamps of stream {stream_id} are the wrong way round")
        position, previous = start + length, stream_id
        entry = ChunkEntry(
            StreamId(stream_id), start, position, records, batches, least_ms, greatest_ms
        )
        entries.append(entry)
    if position != end:
        raise Corrupt(f"the chunks end at {position}, the object's body at {end}")
    return tuple(entries)


def _decode_chunk(data: memoryview, chunk: ChunkEntry) -> tuple[memoryview, ...]:
    batches = verify_run(data[chunk.start : chunk.end])
    if not batches or len(batches) != chunk.batch_count:
        raise Corrupt(f"stream {chunk.stream_id}: {len(batches)} batches, not {chunk.batch_count}")
    records = sum(RECORD_COUNT.unpack_from(batch, RECORD_COUNT_OFFSET)[0] for batch in batches)
    if records != chunk.record_count:
        raise Corrupt(f"stream {chunk.stream_id}: {records} records, not {chunk.record_count}")
    return tuple(batches)
