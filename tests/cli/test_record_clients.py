"""Keys go where Kafka's own producers put them."""

import pytest
from aiokafka.partitioner import murmur2 as oracle
from hypothesis import given
from hypothesis import strategies as st

from lakelog.cli.record_clients import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_one_of_kafka_s_own_tests(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_every_key_agrees_with_another_client(key: bytes, partitions: int) -> None:
    assert murmur2(key) & 0x7FFFFFFF == oracle(key) & 0x7FFFFFFF
    assert 0 <= partition_of(key, partitions) < partitions
