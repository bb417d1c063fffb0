"""The envelope of a domain record: who wrote it, at which level, and its checksum. Pure.

Each broker is an idempotent producer of the log (B1): the stamp (writer, incarnation, number)
makes a repeat harmless and fences the zombies of an older incarnation (rules 3 and 5).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from lakelog.domain.events import Event, Kind, decode_event, encode_event
from lakelog.model.failures import Corrupt

_MAGIC: Final = 0x4C44  # "LD"
_FORMAT: Final = 1
_HEAD: Final = struct.Struct("<HBHQQHB")
_EVENT: Final = struct.Struct("<BI")
_CRC: Final = struct.Struct("<I")
WRITER_BYTES_MAX: Final = 255
EVENTS_MAX: Final = 0xFFFF
OVERHEAD_BYTES_MAX: Final = _HEAD.size + WRITER_BYTES_MAX + _CRC.size
EVENT_OVERHEAD_BYTES: Final = _EVENT.size


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """A writer's incarnation and the number of a record in it; greater is newer."""

    incarnation: int
    number: int


@dataclass(frozen=True, slots=True)
class DomainRecord:
    """One record of a domain log."""

    writer: str
    stamp: Stamp
    level: int
    events: tuple[Event, ...]


def encode_record(record: DomainRecord) -> bytes:
    """The record's bytes."""
    bodies = [encode_event(event) for event in record.events]
    return pack_record(record.writer, record.stamp, record.level, bodies)


def pack_record(
    writer: str, stamp: Stamp, level: int, bodies: Sequence[tuple[Kind, bytes]]
) -> bytes:
    """A record of events that are bytes already."""
    name = writer.encode()
    assert 0 < len(name) <= WRITER_BYTES_MAX, writer
    assert 0 < len(bodies) <= EVENTS_MAX, len(bodies)
    head = (_MAGIC, _FORMAT, level, stamp.incarnation, stamp.number, len(bodies), len(name))
    parts = [_HEAD.pack(*head), name]
    for kind, body in bodies:
        parts += (_EVENT.pack(kind, len(body)), body)
    data = b"".join(parts)
    return data + _CRC.pack(crc32c(data))


def decode_record(data: bytes | memoryview, *, level_max: int) -> DomainRecord:
    """The record, every event checked; `Corrupt` stops the domain at it (rule 11)."""
    view = memoryview(data)
    if len(view) < _HEAD.size + _CRC.size:
        raise Corrupt(f"a record of {len(view)} bytes is no record")
    if crc32c(view[: -_CRC.size]) != _CRC.unpack_from(view, len(view) - _CRC.size)[0]:
        raise Corrupt("the record's checksum is wrong")
    magic, format_version, level, incarnation, number, count, writer_length = _HEAD.unpack_from(
        view
    )
    if magic != _MAGIC or format_version != _FORMAT:
        raise Corrupt(f"record format {format_version} is unknown; a newer version wrote it")
    if level > level_max:
        raise Corrupt(f"the record needs level {level}; this version knows up to {level_max}")
    place, end = _HEAD.size + writer_length, len(view) - _CRC.size
    writer = _decode_writer(view[_HEAD.size : min(place, end)])
    events = []
    for _ in range(count):
        if end - place < _EVENT.size:
            raise Corrupt("the record ends inside an event")
        kind, length = _EVENT.unpack_from(view, place)
        place += _EVENT.size
        if length > end - place:
            raise Corrupt("an event reaches beyond its record")
        events.append(decode_event(kind, view[place : place + length]))
        place += length
    if place != end or not events:
        raise Corrupt("the record holds bytes that belong to no event")
    return DomainRecord(writer, Stamp(incarnation, number), level, tuple(events))


def _decode_writer(name: memoryview) -> str:
    try:
        writer = str(name, "utf-8")
    except UnicodeDecodeError:
        writer = ""
    if not writer:
        raise Corrupt("the record does not say who wrote it")
    return writer
