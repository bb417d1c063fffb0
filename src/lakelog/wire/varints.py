"""Unsigned varints and tagged fields: the run-time part of compiled codecs.

A varint has at most five bytes and fits 32 bits. Unknown tagged fields are stepped over and never
kept (a hostile sender chooses how many there are), and tags must rise.
"""

from lakelog.wire.errors import ProtocolError

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
