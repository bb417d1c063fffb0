"""Which topics a member of a classic consumer group reads, out of its opaque metadata. Pure.

The metadata begins with a version (INT16) and the array of topic names in all versions there are;
the rest is of no interest here. Bytes of another shape tell nothing, and that is no error: groups
of other programs carry what they like.
"""

import struct
from typing import Final

_VERSION: Final = struct.Struct(">h")
_COUNT: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">h")
PROTOCOL_TYPE: Final = "consumer"
"""The protocol type whose metadata is a subscription."""


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """The names of the topics; None when the bytes are no subscription."""
    try:
        return _topics_of(metadata)
    except (struct.error, UnicodeDecodeError):
        return None


def _topics_of(metadata: bytes) -> frozenset[str] | None:
    if _VERSION.unpack_from(metadata)[0] < 0:
        return None
    (count,) = _COUNT.unpack_from(metadata, _VERSION.size)
    place = _VERSION.size + _COUNT.size
    if not 0 <= count <= (len(metadata) - place) // _LENGTH.size:
        return None
    names = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(metadata, place)
        place += _LENGTH.size
        if not 0 <= length <= len(metadata) - place:
            return None
        names.append(metadata[place : place + length].decode())
        place += length
    return frozenset(names)
