"""Ranges as the text of an option."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.config.named_options import BadOption
from lakelog.index.ports import PinnedRange
from lakelog.spark.pinned_ranges import decode_ranges, encode_ranges

_numbers = st.integers(0, (1 << 63) - 1)
_ranges = st.builds(
    PinnedRange,
    st.sampled_from(["t", "ü.x"]),
    st.sampled_from([b"", bytes(16), b"\xff" * 16]),
    _numbers,
    _numbers,
    _numbers,
    _numbers,
)


@given(st.lists(_ranges))
def test_ranges_come_back_as_they_were_topic_by_topic(given_ranges: list[PinnedRange]) -> None:
    topics = list(dict.fromkeys((one.topic, one.topic_id) for one in given_ranges))
    expected = sorted(given_ranges, key=lambda one: topics.index((one.topic, one.topic_id)))
    assert decode_ranges(encode_ranges(given_ranges)) == tuple(expected)


def test_a_thousand_partitions_are_a_short_text() -> None:
    ranges = [PinnedRange("orders", bytes(16), at, at + 1, 0, 10**9) for at in range(1000)]
    assert len(encode_ranges(ranges)) < 30_000


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[["t","",[[1,2,3]]]]', '[["t","?",[]]]'])
def test_what_is_no_ranges_names_the_option(text: str) -> None:
    with pytest.raises(BadOption, match=r"lakelog\.ranges cannot be read"):
        decode_ranges(text)
