"""The first unread record's timestamp, found in the bytes of a fetch."""

import pytest

from lakelog.cli.group_offsets import scan
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec
from lakelog.records.header import BatchError


def batch(
    base_offset: int, *timestamps_ms: int, codec: Codec = Codec.NONE, control: bool = False
) -> bytes:
    """A batch with a record for each timestamp."""
    records = [Record(None, b"v", timestamp_ms) for timestamp_ms in timestamps_ms]
    options = BatchOptions(base_offset=base_offset, codec=codec, control=control)
    return build_batch(records, options)


def test_the_record_at_the_offset_is_found_inside_its_batch() -> None:
    data = memoryview(batch(10, 100, 200, 300))
    assert scan(data, range(10, 13))[0] == 100
    assert scan(data, range(11, 13))[0] == 200
    assert scan(data, range(12, 13))[0] == 300


def test_a_compressed_batch_is_read_as_well() -> None:
    assert scan(memoryview(batch(10, 100, 200, codec=Codec.GZIP)), range(11, 12))[0] == 200


def test_the_first_record_of_the_next_batch_follows_a_gap() -> None:
    data = memoryview(batch(10, 100) + batch(20, 200))
    assert scan(data, range(11, 21))[0] == 200
    assert scan(data, range(15, 21))[0] == 200


def test_markers_are_no_records() -> None:
    marker = batch(10, 100, control=True)
    assert scan(memoryview(marker + batch(11, 200)), range(10, 12))[0] == 200
    timestamp_ms, rest = scan(memoryview(marker), range(10, 12))
    assert (timestamp_ms, rest) == (None, range(11, 12))
    assert not scan(memoryview(marker), range(10, 11))[1]  # nothing is left: only markers


def test_a_partial_batch_tells_nothing() -> None:
    data = memoryview(batch(10, 100))
    assert scan(data[:-1], range(10, 11)) == (None, range(10, 11))
    assert scan(data[:0], range(10, 11)) == (None, range(10, 11))


def test_a_broken_batch_is_refused() -> None:
    data = bytearray(batch(10, 100))
    data[-1] ^= 1
    with pytest.raises(BatchError):
        scan(memoryview(data), range(10, 11))


def test_offsets_above_four_billion_are_counted_as_they_are() -> None:
    base = 1 << 40
    assert scan(memoryview(batch(base, 100, 200)), range(base + 1, base + 2))[0] == 200
