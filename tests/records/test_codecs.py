"""Every codec round-trips, reads what other programs write, and holds its cap."""

import gzip
import tracemalloc

import cramjam
import lz4.frame
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.records.oracles import kafka_codec

from lakelog.records.codecs import (
    PIECE_BYTES,
    Codec,
    DecompressionError,
    OutputTooLargeError,
    compress,
    decompress,
    decompress_pieces,
)

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b'{"id":%d,"name":"n%d"}' % (number, number % 97) for number in range(8_000))
ROOMY = 1 << 24


@settings(deadline=None)
@given(codec=st.sampled_from(Codec), data=st.binary(max_size=2_000), times=st.integers(1, 200))
def test_what_is_compressed_comes_back(codec: Codec, data: bytes, times: int) -> None:
    plain = data * times
    assert decompress(codec, memoryview(compress(codec, plain)), ROOMY) == plain


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("plain", [b"", b"a", TEXT, bytes(1 << 20)], ids=["0", "1", "text", "zero"])
def test_the_cap_is_exact(codec: Codec, plain: bytes) -> None:
    data = memoryview(compress(codec, plain))
    assert decompress(codec, data, len(plain)) == plain
    if plain:
        with pytest.raises(OutputTooLargeError):
            decompress(codec, data, len(plain) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_cut_is_never_taken_for_the_whole(codec: Codec) -> None:
    data = compress(codec, TEXT)
    for end in range(0, len(data), 97):
        try:
            output = decompress(codec, memoryview(data)[:end], ROOMY)
        except DecompressionError:
            continue
        # Framed snappy ends with any block, so a cut between blocks is whole by its own rules.
        assert codec is Codec.SNAPPY
        assert len(output) < len(TEXT)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bytes_behind_the_end_are_refused(codec: Codec) -> None:
    with pytest.raises(DecompressionError):
        decompress(codec, memoryview(compress(codec, TEXT) + b"tail"), ROOMY)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_members_one_after_another_are_read_on(codec: Codec) -> None:
    data = memoryview(compress(codec, TEXT) * 3)
    assert decompress(codec, data, ROOMY) == TEXT * 3
    with pytest.raises(OutputTooLargeError):
        decompress(codec, data, len(TEXT) * 3 - 1)


def test_only_one_lz4_frame_is_read() -> None:
    with pytest.raises(DecompressionError, match="after the end"):
        decompress(Codec.LZ4, memoryview(compress(Codec.LZ4, b"x") * 2), ROOMY)


def test_skippable_zstd_frames_are_skipped() -> None:
    skipped = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"hello"
    data = memoryview(skipped + compress(Codec.ZSTD, TEXT) + skipped)
    assert decompress(Codec.ZSTD, data, ROOMY) == TEXT


def test_raw_snappy_is_read_too() -> None:
    data = memoryview(bytes(cramjam.snappy.compress_raw(TEXT)))
    assert decompress(Codec.SNAPPY, data, len(TEXT)) == TEXT


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.GZIP, gzip.compress(TEXT)),
        (Codec.GZIP, kafka_codec.gzip_encode(TEXT)),
        (Codec.SNAPPY, aiokafka_codec.snappy_encode(TEXT)),
        (Codec.LZ4, kafka_codec.lz4_encode(TEXT)),
        (Codec.LZ4, aiokafka_codec.lz4_encode(TEXT)),
        (Codec.LZ4, lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True)),
        (Codec.LZ4, lz4.frame.compress(TEXT, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
        (Codec.ZSTD, aiokafka_codec.zstd_encode(TEXT)),
        (Codec.ZSTD, bytes(cramjam.zstd.compress(TEXT, level=19))),
    ],
)
def test_what_other_programs_compress_is_read(codec: Codec, data: bytes) -> None:
    assert decompress(codec, memoryview(bytes(data)), ROOMY) == TEXT


def test_other_programs_read_what_we_compress() -> None:
    decoders = {
        Codec.GZIP: (kafka_codec.gzip_decode, aiokafka_codec.gzip_decode),
        Codec.SNAPPY: (aiokafka_codec.snappy_decode,),
        Codec.LZ4: (kafka_codec.lz4_decode, aiokafka_codec.lz4_decode),
        Codec.ZSTD: (aiokafka_codec.zstd_decode,),
    }
    for codec, functions in decoders.items():
        for decode in functions:
            assert bytes(decode(compress(codec, TEXT))) == TEXT


def test_a_declared_length_alone_costs_nothing() -> None:
    # CVE-2023-34455: four bytes that declare four gigabytes.
    with pytest.raises(DecompressionError, match="cannot become"):
        decompress(Codec.SNAPPY, memoryview(b"\xff\xff\xff\xff\x0f" + bytes(20)), 1 << 33)


def repeated_zstd_blocks(blocks: int) -> bytes:
    """A frame of blocks that each repeat one byte 131 072 times: four bytes each."""
    frame = (0xFD2FB528).to_bytes(4, "little") + b"\x00" + bytes([7 << 3])
    for number in range(blocks):
        last = number == blocks - 1
        frame += (int(last) | 1 << 1 | 131_072 << 3).to_bytes(3, "little") + b"x"
    return frame


def test_a_zstd_bomb_ends_at_the_cap() -> None:
    bomb = memoryview(repeated_zstd_blocks(1_000))
    assert len(decompress(Codec.ZSTD, bomb, 131_072_000)) == 131_072_000
    with pytest.raises(OutputTooLargeError):
        decompress(Codec.ZSTD, bomb, ROOMY)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_streamed_bomb_costs_a_piece_of_memory(codec: Codec) -> None:
    bomb = memoryview(compress(codec, bytes(ROOMY)))
    tracemalloc.start()
    total = sum(len(piece) for piece in decompress_pieces(codec, bomb, ROOMY))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == ROOMY
    assert peak_bytes < 8 * PIECE_BYTES


def test_many_tiny_members_come_out_joined() -> None:
    data = memoryview(gzip.compress(b"ab") * 2_000)
    pieces = list(decompress_pieces(Codec.GZIP, data, ROOMY))
    assert len(pieces) == 1
    assert pieces[0] == b"ab" * 2_000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x28\xb5\x2f\xfd",
        b"\x28\xb5\x2f\xfd\x00",
        b"\x28\xb5\x2f\xfd\x00\xff\x01\x00\x00",
        b"\x28\xb5\x2f\xfd\x00\x38\x07\x00\x00",
        b"\x50\x2a\x4d\x18\xff\xff\xff\xff",
        b"\x50\x2a\x4d\x18",
        b"nonsense",
    ],
)
def test_zstd_headers_that_lie_are_refused(data: bytes) -> None:
    with pytest.raises(DecompressionError):
        decompress(Codec.ZSTD, memoryview(data), ROOMY)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_nothing_is_not_compressed_data(codec: Codec) -> None:
    with pytest.raises(DecompressionError):
        decompress(codec, memoryview(b""), ROOMY)
