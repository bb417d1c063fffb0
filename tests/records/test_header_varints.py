"""Numbers round-trip, are strict about their width, and say when the data ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.records.header import (
    IncompleteError,
    MalformedBatchError,
    read_varint,
    read_varlong,
    varint_bytes,
    write_varint,
)


def written(value: int) -> memoryview:
    output = bytearray()
    write_varint(output, value)
    return memoryview(output)


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (64, "8001"), (-65, "8101"), (300, "d804")],
)
def test_the_bytes_are_the_protocols(value: int, data: str) -> None:
    assert written(value).hex() == data


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_a_varint_comes_back(value: int) -> None:
    data = written(value)
    assert read_varint(data, 0, len(data)) == (value, len(data))
    assert len(data) == varint_bytes(value) <= 5


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_varlong_comes_back_and_a_varint_refuses_what_is_wider(value: int) -> None:
    data = written(value)
    assert read_varlong(data, 0, len(data)) == (value, len(data))
    assert len(data) == varint_bytes(value) <= 10
    if not -(1 << 31) <= value < 1 << 31:
        with pytest.raises(MalformedBatchError):
            read_varint(data, 0, len(data))
    for end in range(len(data)):
        with pytest.raises(IncompleteError):
            read_varlong(data, 0, end)


@pytest.mark.parametrize("data", ["ffffffff10", "8080808080", "ffffffffff"])
def test_a_varint_of_more_than_32_bits_is_malformed(data: str) -> None:
    with pytest.raises(MalformedBatchError):
        read_varint(memoryview(bytes.fromhex(data)), 0, 5)


@pytest.mark.parametrize("data", ["ff" * 9 + "02", "80" * 10])
def test_a_varlong_of_more_than_64_bits_is_malformed(data: str) -> None:
    with pytest.raises(MalformedBatchError):
        read_varlong(memoryview(bytes.fromhex(data)), 0, 10)
