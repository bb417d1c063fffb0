"""The bench's reader counts whole batches, goes on where they end, and sees errors."""

import struct

import pytest
from bench.raw import KafkaError, batch, string
from bench.raw_fetch import Fetched, fetch_body, fetched


def at_offset(values: list[bytes], base: int) -> bytes:
    return struct.pack(">q", base) + batch(values, 1)[8:]


def answer(*partitions: tuple[int, int, bytes]) -> bytes:
    rows = b"".join(
        struct.pack(">ihqqii", partition, error, 9, 9, -1, len(records)) + records
        for partition, error, records in partitions
    )
    return struct.pack(">ii", 0, 1) + string("t") + struct.pack(">i", len(partitions)) + rows


def test_a_partition_goes_on_after_its_last_whole_batch() -> None:
    one, two = at_offset([b"a", b"b"], 10), at_offset([b"c"], 12)
    found = list(fetched(answer((0, 0, one + two), (3, 0, one + two[:-1])), {0: 11, 3: 10}))
    assert found == [Fetched(0, len(one + two), 13), Fetched(3, len(one), 12)]


def test_nothing_new_is_nothing() -> None:
    assert list(fetched(answer((0, 0, b""), (1, 0, b"")), {0: 5, 1: 5})) == []
    assert list(fetched(struct.pack(">ii", 0, 0), {})) == []


def test_a_batch_cut_off_at_once_keeps_the_offset() -> None:
    cut = at_offset([b"a"], 7)[:30]
    assert list(fetched(answer((2, 0, cut)), {2: 7})) == [Fetched(2, 0, 7)]


def test_an_error_of_a_partition_is_raised() -> None:
    with pytest.raises(KafkaError, match="partition 1 answered 6"):
        list(fetched(answer((0, 0, b""), (1, 6, b"")), {0: 0, 1: 0}))


def test_a_body_asks_for_every_partition_by_its_offset() -> None:
    body = fetch_body("t", [(0, 5), (9, 1 << 40)])
    rows = (struct.pack(">iqi", 0, 5, 1 << 20), struct.pack(">iqi", 9, 1 << 40, 1 << 20))
    assert body.endswith(string("t") + struct.pack(">i", 2) + b"".join(rows))
