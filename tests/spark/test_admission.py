"""How much a trigger takes: shares by size, nobody starves, nothing beyond the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.lake.read.read_request import PartitionName
from lakelog.spark.admission import admitted, is_due, offset_count

PLACES = [PartitionName("t", at) for at in range(5)]
OFFSETS = st.integers(0, 2**63 - 1)
PAIRS = st.lists(st.tuples(OFFSETS, OFFSETS).map(sorted), min_size=1, max_size=5)


def places(*offsets: int) -> dict[PartitionName, int]:
    return dict(zip(PLACES, offsets, strict=False))


@pytest.mark.parametrize(
    ("begins", "ends", "limit", "taken"),
    [
        ((0, 0), (10, 5), 4, (2, 1)),
        ((5, 0), (5, 100), 10, (5, 10)),
        ((0, 0), (1000, 1), 10, (9, 1)),
        ((0, 0, 0), (9, 9, 9), 1, (1, 1, 1)),
        ((3, 4), (9, 9), 11, (9, 9)),
        ((9, 0), (4, 6), 3, (4, 3)),
    ],
)
def test_shares_are_by_size_as_in_kafka_s_source(
    begins: tuple[int, ...], ends: tuple[int, ...], limit: int, taken: tuple[int, ...]
) -> None:
    assert admitted(places(*begins), places(*ends), limit=limit) == places(*taken)


@given(PAIRS, st.integers(1, 2**63 - 1))
def test_every_partition_progresses_and_the_limit_holds_but_for_that(
    pairs: list[list[int]], limit: int
) -> None:
    begins = places(*(begin for begin, _ in pairs))
    ends = places(*(end for _, end in pairs))
    taken = admitted(begins, ends, limit=limit)
    for place, end in ends.items():
        assert begins[place] <= taken[place] <= end
        assert taken[place] > begins[place] or end == begins[place]
    assert offset_count(begins, taken) < limit + len(pairs)


def test_a_trigger_waits_for_enough_but_not_for_ever() -> None:
    assert is_due(10, least=10, waited_s=0.0, delay_s=60)
    assert not is_due(9, least=10, waited_s=59.9, delay_s=60)
    assert is_due(9, least=10, waited_s=60.0, delay_s=60)
    assert not is_due(0, least=10, waited_s=60.0, delay_s=60)


def test_the_first_trigger_takes_what_there_is() -> None:
    assert is_due(1, least=10, waited_s=None, delay_s=60)
    assert not is_due(0, least=10, waited_s=None, delay_s=60)
