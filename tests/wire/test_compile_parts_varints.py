"""Varints have one to five bytes and 32 bits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.wire.compile_parts import VARINT_MAX, read_varint, skip_tags, write_varint
from lakelog.wire.schema import ProtocolError


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, b"\0"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        ((1 << 14) - 1, b"\xff\x7f"),
        (1 << 14, b"\x80\x80\x01"),
        ((1 << 21) - 1, b"\xff\xff\x7f"),
        (1 << 21, b"\x80\x80\x80\x01"),
        (VARINT_MAX, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_a_varint_is_these_bytes(value: int, data: bytes) -> None:
    assert write_varint(value) == data
    assert read_varint(memoryview(b"." + data), 1) == (value, 1 + len(data))


@settings(deadline=None)
@given(st.integers(0, VARINT_MAX))
def test_what_is_written_is_read(value: int) -> None:
    data = write_varint(value)
    assert read_varint(memoryview(data), 0) == (value, len(data))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x01"])
def test_more_than_32_bits_or_five_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_varint(memoryview(data), 0)


def test_tags_are_skipped_to_the_position_behind_them() -> None:
    data = memoryview(b"\x00\x02ab\x05\x00rest")
    assert skip_tags(data, 0, len(data), 2) == 6
