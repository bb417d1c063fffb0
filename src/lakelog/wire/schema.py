"""What a message class says about its bytes: the metadata that the codec compiler reads.

A message is one frozen struct per Kafka struct in its newest shape. Each field is annotated with a
`Field`: the kind of its bytes and the versions it belongs to. Version ranges are half-open. Fields
that only old versions have come last in the class and name the field they precede on the wire.

Bytes and messages disagree in two ways: `ProtocolError` and `EncodeError`. Only `ProtocolError`
leaves a decoder, whatever the bytes are.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from msgspec import Struct


class ProtocolError(Exception):
    """What the other side sent is not Kafka's protocol: close the connection."""


class EncodeError(Exception):
    """A message of ours does not fit its own schema: a bug, or a value too long for the version."""


Buffer: TypeAlias = bytes | bytearray | memoryview

Primitive: TypeAlias = Literal[
    "bool",
    "int8",
    "int16",
    "uint16",
    "int32",
    "int64",
    "float64",
    "uuid",
    "string",
    "bytes",
    "records",
]

ZERO_UUID = bytes(16)
"""The id that stands for "no id": Kafka has no null for ids."""

VERSION_END = 1 << 15
"""One more than the greatest version an INT16 can hold: "for ever" as the end of a range."""


@dataclass(frozen=True, slots=True)
class Field:
    """How one field stands on the wire, and in which versions.

    `kind` is a primitive or the struct itself; with `array` it is the kind of the elements. The
    field exists in the versions [since, until). It may be null from version `nullable_from` on.
    `tag` makes it a tagged field. `before` is the field that follows an old field on the wire;
    without it an old field stands at the end.
    """

    kind: Primitive | type[Struct]
    array: bool = False
    since: int = 0
    until: int = VERSION_END
    nullable_from: int | None = None
    tag: int | None = None
    before: str | None = None


@dataclass(frozen=True, slots=True)
class MessageVersions:
    """The versions [first, end) that a message can be read and written in."""

    first: int
    end: int
    flexible_from: int = VERSION_END


class RecordParts(Struct, frozen=True, gc=False):
    """Record bytes that live in several buffers and are sent one after the other, uncopied.

    `size` is the sum of the lengths of the parts; every part is one-dimensional and of bytes.
    """

    parts: list[Buffer]
    size: int


Records: TypeAlias = Buffer | RecordParts
