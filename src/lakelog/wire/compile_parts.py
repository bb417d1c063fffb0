"""What compiled codecs are made of: the writer of their source, and what they call when they run.

`SourceWriter` has lines, fresh names, constants. The compiled functions refer to whatever is not a
local (struct packers, message classes, default values) by name in one namespace, which this writer
collects.

Unsigned varints and tagged fields are the run-time part. A varint has at most five bytes and fits
32 bits. Unknown tagged fields are stepped over and never kept (a hostile sender chooses how many
there are), and tags must rise.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from lakelog.wire.schema import ProtocolError

SIMPLE = (int, str, bool, type(None))


class SourceWriter:
    """Collects the body of one function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, object] = {}
        self._depth = 1
        self._names = 0

    def line(self, text: str) -> None:
        """Add a line at the present depth."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line that opens a block; what is added inside stands one level deeper."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, stem: str) -> str:
        """A local name that nothing else in the function has."""
        self._names += 1
        return f"{stem}_{self._names}"

    def constant(self, value: object) -> str:
        """An expression for a value: a literal, or the name of a constant."""
        if isinstance(value, SIMPLE) or value in ((), b""):
            return repr(value)
        if isinstance(value, type):
            self.namespace[value.__name__] = value
            return value.__name__
        name = self.name("constant")
        self.namespace[name] = value
        return name

    def unpacker(self, format_codes: str) -> str:
        """The name of a function that reads these big-endian codes at a position."""
        name = f"unpack_{_spelled(format_codes)}"
        self.namespace[name] = struct.Struct(f">{format_codes}").unpack_from
        return name

    def packer(self, format_codes: str) -> str:
        """The name of a function that writes these big-endian codes."""
        name = f"pack_{_spelled(format_codes)}"
        self.namespace[name] = struct.Struct(f">{format_codes}").pack
        return name

    def function(self, head: str) -> str:
        """The source of the function."""
        return "\n".join([head, *self.lines, ""])


def _spelled(format_codes: str) -> str:
    return format_codes.replace("?", "t")


VARINT_MAX = 0xFFFFFFFF
ONE_BYTE = tuple(bytes([value]) for value in range(128))
"""The varints of 0 to 127, ready made."""


def read_tail(data: memoryview, position: int, value: int) -> tuple[int, int]:
    """Finish a varint whose first byte, `value`, said that more follow."""
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > VARINT_MAX:
                break
            return value, position
    raise ProtocolError("a varint has more than 32 bits")


def read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """The varint at a position, and the position behind it."""
    byte = data[position]
    position += 1
    return (byte, position) if byte < 128 else read_tail(data, position, byte)


def write_varint(value: int) -> bytes:
    """The bytes of a varint."""
    if value < 128:
        return ONE_BYTE[value]
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    written = bytearray()
    while value > 127:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def skip_tags(data: memoryview, position: int, end: int, count: int) -> int:
    """Step over tagged fields, all of them unknown; return the position behind them."""
    if count > 127:
        count, position = read_tail(data, position, count)
    if count * 2 > end - position:
        raise ProtocolError("there are fewer bytes than tagged fields")
    previous = -1
    for _ in range(count):
        tag, position = read_varint(data, position)
        size, position = read_varint(data, position)
        if tag <= previous:
            raise ProtocolError("tagged fields are not in rising order")
        previous = tag
        position += size
        if position > end:
            raise ProtocolError("a tagged field reaches beyond the message")
    return position
