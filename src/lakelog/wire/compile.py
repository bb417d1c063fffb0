"""Compiles the codec of one (message class, version) at its first use, and keeps it.

The source is made from our own field tables, never from input. What a broker needs for every API in
every version compiles in an eighth of a second, the worst one in about a millisecond, so nothing is
compiled ahead and no generated functions are checked in.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import TypeAlias, cast

from msgspec import Struct

from lakelog.wire.compile_decode import DecoderSource
from lakelog.wire.compile_encode import EncoderSource
from lakelog.wire.compile_parts import ONE_BYTE, read_tail, read_varint, skip_tags, write_varint
from lakelog.wire.layout import UUID_SIZE, MessageLayout, message_versions
from lakelog.wire.schema import Buffer, EncodeError, ProtocolError, RecordParts, Records

Decoder: TypeAlias = Callable[[memoryview, int, int], tuple[Struct, int]]
Encoder: TypeAlias = Callable[
    [Struct, list[Buffer], list[bytes], Callable[[bytes], None]],
    None,
]


def too_short(what: str) -> ProtocolError:
    """The failure of a length that reaches beyond the message."""
    return ProtocolError(f"{what}: the message ends too soon")


def too_many(what: str) -> ProtocolError:
    """The failure of a request that is all array elements."""
    return ProtocolError(f"{what}: the request has more elements than any client sends")


def bad_length(what: str, length: int) -> ProtocolError:
    """The failure of a null or negative length where there may be none."""
    return ProtocolError(f"{what}: null is not allowed, and no length is {length}")


def bad_tag(what: str, tag: int) -> ProtocolError:
    """The failure of a tagged field out of order or of the wrong size."""
    return ProtocolError(f"{what}: tagged field {tag} is out of order or has the wrong size")


def id_bytes(value: bytes) -> bytes:
    """An id, checked: struct would silently pad or cut one of another length."""
    if len(value) != UUID_SIZE:
        raise EncodeError(f"an id has {len(value)} bytes instead of {UUID_SIZE}")
    return value


def compact_size(size: int) -> bytes:
    """The length of records in a flexible version."""
    return write_varint(size + 1)


def put_records(
    value: Records, length: Callable[[int], bytes], parts: list[Buffer], run: list[bytes]
) -> None:
    """Write the length of records, close the run and let their buffers follow it, uncopied."""
    if isinstance(value, RecordParts):
        # A wrong size would shift every byte that follows on the connection.
        assert sum(map(len, value.parts)) == value.size, "the parts do not add up to the size"
        run.append(length(value.size))
        parts.append(b"".join(run))
        parts.extend(value.parts)
        run.clear()
    elif value:
        run.append(length(len(value)))
        parts.append(b"".join(run))
        parts.append(value)
        run.clear()
    else:
        run.append(length(0))


def tagged(tag: int, pieces: list[bytes]) -> bytes:
    """One tagged field with its tag and size."""
    body = b"".join(pieces)
    return write_varint(tag) + write_varint(len(body)) + body


RUNTIME: dict[str, object] = {
    "bad_length": bad_length,
    "bad_tag": bad_tag,
    "compact_size": compact_size,
    "id_bytes": id_bytes,
    "one_byte": ONE_BYTE,
    "pack": struct.pack,
    "plain_size": struct.Struct(">i").pack,
    "put_records": put_records,
    "read_tail": read_tail,
    "read_varint": read_varint,
    "skip_tags": skip_tags,
    "tagged": tagged,
    "too_many": too_many,
    "too_short": too_short,
    "unpack_from": struct.unpack_from,
    "write_varint": write_varint,
}


@cache
def decoder(message: type[Struct], version: int) -> Decoder | None:
    """The decoder of a message in a version, or None where the message has no such version."""
    layout = message_layout(message, version)
    if layout is None:
        return None
    source, namespace = DecoderSource(layout).build()
    return cast("Decoder", _compiled("decode", layout, source, namespace))


@cache
def encoder(message: type[Struct], version: int) -> Encoder | None:
    """The encoder of a message in a version, or None where the message has no such version."""
    layout = message_layout(message, version)
    if layout is None:
        return None
    source, namespace = EncoderSource(layout).build()
    return cast("Encoder", _compiled("encode", layout, source, namespace))


def message_layout(message: type[Struct], version: int) -> MessageLayout | None:
    """What stands on the wire in a version."""
    versions = message_versions(message)
    if not versions.first <= version < versions.end:
        return None
    return MessageLayout(message, version, flexible=version >= versions.flexible_from)


def _compiled(
    name: str, layout: MessageLayout, source: str, namespace: dict[str, object]
) -> object:
    label = f"<{name} {layout.root.__name__} v{layout.version}>"
    scope = RUNTIME | namespace
    exec(compile(source, label, "exec"), scope)  # noqa: S102 - built from our own field tables
    return scope[name]
