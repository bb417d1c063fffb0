"""WAL ids and object keys: time-ordered, and each derivable from the other.

An id has the layout of a UUID of version 7: 48 bits of milliseconds, then chance. Its order is the
order of time, which is what a Horizon judges by (RFC 0001). The date in an object's key comes
from the id alone, so that a key can be made from an id by anybody, at any time.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from lakelog.model.ids import DomainId, WalId

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
