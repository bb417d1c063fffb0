"""The four compressions of record batches, each with a cap on its output.

Hostile input costs an error, never memory: no buffer is sized by what a sender declares before the
declaration is checked against the cap and against what the format can reach (T-SEC-03). gzip, lz4,
zstd and framed snappy come out in pieces of at most `PIECE_BYTES`, whatever the ratio; zstd adds
the window that its frame asks for, as far as output fills it. Raw snappy comes out whole, because
its copies may reach back to its beginning: at most 22 times its input.

What is read: gzip with several members; zstd with several and skippable frames; lz4 as exactly one
standard frame; snappy raw, as librdkafka writes it, and in xerial's framing, as Java does.
"""

import mmap
import sys
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import cramjam
import lz4.frame

from lakelog.records.header import BatchError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECE_BYTES: Final = 65_536
"""The most that a codec which streams puts out at once."""

_WHOLE_PIECE_BYTES: Final = 1_048_576
_WHOLE_RATIO: Final = 8
"""Who wants the whole output gets larger pieces, so that there is mostly one and none is joined:
as much as input of an ordinary ratio becomes, up to a limit that bounds what a lie costs."""

_FEED_BYTES: Final = 65_536
"""Input is fed in slices: what a decoder leaves over is copied, so many tiny members of one large
input would otherwise cost its square."""

_SNAPPY_RATIO_MAX: Final = 22
"""Three bytes of snappy copy at most 64, so no honest length is above this times the input."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK_BYTES: Final = 32_768

_LAZY_BYTES: Final = 1_048_576
"""Above this a buffer is mapped, so that what is never written is never paid for."""

ZSTD_LEVEL: Final = 1
"""On rows of JSON smaller than at 3, and twice as fast."""

_LZ4_LEVEL: Final = -3
"""Steps that the search skips: a third faster for 4 % of size."""

_ZSTD_OPTIONS: Final = {int(zstd.DecompressionParameter.window_log_max): 27}
"""The window that Kafka's own reader allows: of its 128 MiB only what is written costs memory."""

GZIP_LEVEL: Final = 6


class Codec(IntEnum):
    """A compression, by the number in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressionError(BatchError):
    """The bytes are not what the codec writes."""


class OutputTooLargeError(DecompressionError):
    """The output would pass the caller's cap."""


def compress(codec: Codec, data: bytes | memoryview) -> bytes:
    """The bytes as the codec's producers write them: framed lz4, snappy in xerial's framing."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            deflate = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)
            return deflate.compress(data) + deflate.flush()
        case Codec.SNAPPY:
            return _compress_xerial(memoryview(data))
        case Codec.LZ4:
            return bytes(
                lz4.frame.compress(
                    data, compression_level=_LZ4_LEVEL, block_linked=False, store_size=False
                )
            )
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))


def decompress(codec: Codec, data: memoryview, bytes_max: int) -> memoryview:
    """The whole output, at most `bytes_max` bytes; without compression the data itself."""
    if codec is Codec.NONE:
        return data
    guess = min(max(_WHOLE_RATIO * len(data), PIECE_BYTES), _WHOLE_PIECE_BYTES)
    if codec is Codec.LZ4 and len(data) <= _FEED_BYTES:
        whole = _whole_lz4(data, guess)
        if whole is not None and len(whole) <= bytes_max:
            return whole
    return _joined(list(decompress_pieces(codec, data, bytes_max, piece_bytes=guess)))


def decompress_pieces(
    codec: Codec, data: memoryview, bytes_max: int, *, piece_bytes: int = PIECE_BYTES
) -> Iterator[memoryview]:
    """The output piece by piece; raises in the course of it, at the latest at its end.

    No piece but the last is small: many tiny members or blocks come out joined, so that a reader's
    work grows with the bytes and not with the pieces.
    """
    held: list[memoryview] = []
    total = yielded = 0
    for piece in _pieces(codec, data, bytes_max, piece_bytes):
        held.append(piece)
        total += len(piece)
        if total > bytes_max:
            raise OutputTooLargeError(f"more than {bytes_max} bytes")
        if total - yielded >= piece_bytes // 2:
            yield _joined(held)
            held, yielded = [], total
    if held:
        yield _joined(held)


def _joined(pieces: list[memoryview]) -> memoryview:
    return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))


def _pieces(
    codec: Codec, data: memoryview, bytes_max: int, piece_bytes: int
) -> Iterator[memoryview]:
    match codec:
        case Codec.NONE:
            return iter((data,))
        case Codec.GZIP:
            return _gzip_pieces(data, piece_bytes)
        case Codec.SNAPPY if bytes(data[:8]) == _XERIAL_MAGIC:
            return _xerial_pieces(data, bytes_max)
        case Codec.SNAPPY:
            return iter((_decompress_snappy(data, bytes_max),))
        case Codec.LZ4:
            return _lz4_pieces(data, piece_bytes)
        case Codec.ZSTD:
            return _zstd_pieces(data, piece_bytes)


def _gzip_pieces(data: memoryview, piece_bytes: int) -> Iterator[memoryview]:
    position = 0
    while True:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while not member.eof:
            feed = data[position : position + _FEED_BYTES]
            try:
                piece = member.decompress(feed, piece_bytes)
            except zlib.error as error:
                raise DecompressionError(f"gzip: {error}") from error
            position += len(feed) - len(member.unused_data or member.unconsumed_tail)
            if piece:
                yield memoryview(piece)
            elif not feed and not member.eof:
                raise DecompressionError("gzip: the data ends within a member")
        if position == len(data):
            return


def _lz4_pieces(data: memoryview, piece_bytes: int) -> Iterator[memoryview]:
    context = lz4.frame.create_decompression_context()
    position = 0
    ended = False
    while not ended:
        feed = data[position : position + _FEED_BYTES]
        try:
            piece, read, ended = lz4.frame.decompress_chunk(context, feed, max_length=piece_bytes)
        except RuntimeError as error:
            raise DecompressionError(f"lz4: {error}") from error
        position += read
        if piece:
            yield memoryview(piece)
        elif not ended and not read:
            raise DecompressionError("lz4: the data ends within the frame")
    # Kafka reads one frame and looks no further; other consumers read on. Only one is safe.
    if position < len(data):
        raise DecompressionError("lz4: bytes after the end of the frame")


def _whole_lz4(data: memoryview, bytes_max: int) -> memoryview | None:
    """The output of an ordinary frame by one call; None where it takes more, or is wrong."""
    context = lz4.frame.create_decompression_context()
    try:
        piece, read, ended = lz4.frame.decompress_chunk(context, data, max_length=bytes_max)
    except RuntimeError:
        return None
    return memoryview(piece) if ended and read == len(data) else None


def _decompress_snappy(data: memoryview, bytes_max: int) -> memoryview:
    if not data:
        raise DecompressionError("snappy: no data")
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > _SNAPPY_RATIO_MAX * len(data):
            raise DecompressionError(f"snappy: {len(data)} bytes cannot become {size}")
        if size > bytes_max:
            raise OutputTooLargeError(f"snappy: {size} bytes, the cap is {bytes_max}")
        output = _room(size)
        written = cramjam.snappy.decompress_raw_into(data, output) if size else 0
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from error
    return output[:written]


def _xerial_pieces(data: memoryview, bytes_max: int) -> Iterator[memoryview]:
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise DecompressionError("snappy: the framing's header is cut off")
    while position < len(data):
        start = position + 4
        length = int.from_bytes(data[position:start], "big")
        position = start + length
        if start > len(data) or position > len(data):
            raise DecompressionError("snappy: a block passes the end")
        yield _decompress_snappy(data[start:position], bytes_max)


def _compress_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _zstd_pieces(data: memoryview, piece_bytes: int) -> Iterator[memoryview]:
    """Frame after frame, each fed exactly its own bytes, so that none is copied for the next."""
    if not data:
        raise DecompressionError("zstd: no data")
    position = 0
    try:
        while position < len(data):
            end = position + zstd.get_frame_size(data[position:])
            frame = zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)
            while not frame.eof:
                hungry = frame.needs_input
                feed = data[position : min(position + _FEED_BYTES, end)] if hungry else b""
                piece = frame.decompress(feed, piece_bytes)
                position += len(feed)
                if piece:
                    yield memoryview(piece)
                elif hungry and not feed and not frame.eof:
                    raise DecompressionError("zstd: the data ends within a frame")
            position = end
    except zstd.ZstdError as error:
        raise DecompressionError(f"zstd: {error}") from error


def _room(size: int) -> memoryview:
    """A writable buffer; a large one costs only the pages that are written."""
    if size <= _LAZY_BYTES:
        return memoryview(bytearray(size))
    return memoryview(mmap.mmap(-1, size))
