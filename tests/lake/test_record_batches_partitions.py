"""Partitions equal those of the Java client, and depend on nothing but the row."""

import numpy as np
import pytest
from aiokafka.partitioner import murmur2 as oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lake.blocks import rows_of
from tests.sides import native

from lakelog.lake.write import record_batches as making
from lakelog.lake.write.record_batches import chosen_partitions, hash_in_python
from lakelog.lake.write.write_options import BadRow
from lakelog.records.build import RecordBlock, murmur2

JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""The vectors of Kafka's own test."""


def block_of(**columns: list[object]) -> RecordBlock:
    rows, places = rows_of(**columns)
    return making._block(rows, places, 0)


@pytest.mark.parametrize(("key", "signed"), JAVA.items())
def test_the_hash_is_that_of_the_java_client(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_the_hash_is_that_of_another_client(key: bytes) -> None:
    assert murmur2(key) == oracle(key) & 0xFFFFFFFF


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40)))
def test_the_kernel_equals_its_twin(keys: list[bytes]) -> None:
    data = np.frombuffer(b"".join(keys), np.uint8)
    ends = np.cumsum([len(key) for key in keys], dtype=np.int64)
    starts = ends - np.array([len(key) for key in keys], np.int64)
    one, other = np.empty(len(keys), np.uint32), np.empty(len(keys), np.uint32)
    native().hash_places(data, starts, ends, one)
    hash_in_python(data, starts, ends, other)
    assert one.tolist() == other.tolist() == [murmur2(key) for key in keys]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9))),
    st.integers(1, 50),
)
def test_the_key_decides_then_the_value_then_nothing(
    some: list[tuple[bytes | None, bytes | None]], count: int
) -> None:
    block = block_of(key=[key for key, _ in some], value=[value for _, value in some])
    found = chosen_partitions(block, None, topic="t", count=count).tolist()
    decides = [value if key is None else key for key, value in some]
    assert found == [0 if one is None else (murmur2(one) & 0x7FFFFFFF) % count for one in decides]


def test_a_partition_that_the_row_names_is_taken() -> None:
    block = block_of(key=[b"foobar", b"foobar"], value=[b"", b""])
    given_partitions = np.array([3, -1])
    hashed = (JAVA[b"foobar"] & 0x7FFFFFFF) % 7
    found = chosen_partitions(block, given_partitions, topic="t", count=7)
    assert found.tolist() == [3, hashed]


def test_a_partition_that_the_topic_lacks_is_refused_by_name() -> None:
    block = block_of(value=[b"", b""])
    with pytest.raises(BadRow, match="partition 7 of the topic orders, which has 7"):
        chosen_partitions(block, np.array([3, 7]), topic="orders", count=7)
