"""Messages to bytes and back, in any version.

Nothing but `ProtocolError` leaves `decode`, whatever the bytes are. Record bytes are never copied:
they come in as views of the frame and leave as parts of their own. Bytes behind the message are
ignored, as Kafka does.
"""

import struct
from typing import Final, TypeVar, cast

from msgspec import Struct

from lakelog.wire.compile import decoder, encoder
from lakelog.wire.errors import EncodeError, ProtocolError
from lakelog.wire.schema import Buffer

Message = TypeVar("Message", bound=Struct)

FIELDS_PER_PART: Final = 65_536
"""Fields that are joined in one go. Joining, and letting go of what was joined, holds the
interpreter: two million fields of an answer took 0.2 s, in which no other thread ran (R2)."""


def decode(
    kind: type[Message], version: int, data: memoryview, start: int = 0
) -> tuple[Message, int]:
    """The message at `start` and the position behind it."""
    function = decoder(kind, version)
    if function is None:
        raise ProtocolError(f"{kind.__name__} has no version {version}")
    try:
        found, position = function(data, start, len(data))
    except (IndexError, struct.error):
        raise ProtocolError(f"{kind.__name__} v{version}: the message ends too soon") from None
    except UnicodeDecodeError:
        raise ProtocolError(f"{kind.__name__} v{version}: a string is not UTF-8") from None
    return cast("Message", found), position


def encode(message: Struct, version: int) -> list[Buffer]:
    """The bytes of a message as parts to be sent one after the other."""
    function = encoder(type(message), version)
    if function is None:
        raise EncodeError(f"{type(message).__name__} has no version {version}")
    parts: list[Buffer] = []
    run: list[bytes] = []
    try:
        function(message, parts, run, run.append)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as reason:
        raise EncodeError(f"{type(message).__name__} v{version}: {reason}") from reason
    while len(run) > FIELDS_PER_PART:
        parts.append(b"".join(run[:FIELDS_PER_PART]))
        del run[:FIELDS_PER_PART]
    if run:
        parts.append(b"".join(run))
    return parts
