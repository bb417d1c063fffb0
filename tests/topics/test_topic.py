from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.model.failures import Corrupt
from lakelog.model.ids import TopicId
from lakelog.topics.failures import TooLarge
from lakelog.topics.settings import settings
from lakelog.topics.topic import StreamSpan, Topic, TopicState, decode, encode, joined

NAME = "orders"


def topic(spans: tuple[StreamSpan, ...], **configs: str) -> Topic:
    return Topic(NAME, TopicId(bytes(range(16))), spans, 3, configs, settings(configs))


@st.composite
def blocks(draw: st.DrawFn) -> tuple[StreamSpan, ...]:
    """Blocks of streams as a counter gives them out, some of them adjoining."""
    spans: tuple[StreamSpan, ...] = ()
    stream = draw(st.integers(1, 1 << 40))
    partition = 0
    for count in draw(st.lists(st.integers(1, 50), min_size=1, max_size=8)):
        spans = joined(spans, StreamSpan(partition, stream, count))
        partition += count
        stream += count + draw(st.sampled_from([0, 0, 1, 17]))
    return spans


@given(blocks())
def test_partitions_and_streams_map_onto_each_other(spans: tuple[StreamSpan, ...]) -> None:
    made = topic(spans)
    streams = made.streams()
    assert len(set(streams)) == len(streams) == made.partition_count
    assert [made.stream(partition) for partition in range(made.partition_count)] == streams
    assert made.stream(-1) is None
    assert made.stream(made.partition_count) is None


def test_adjoining_blocks_become_one_span() -> None:
    assert joined((StreamSpan(0, 10, 3),), StreamSpan(3, 13, 2)) == (StreamSpan(0, 10, 5),)
    assert joined((StreamSpan(0, 10, 3),), StreamSpan(3, 14, 2)) == (
        StreamSpan(0, 10, 3),
        StreamSpan(3, 14, 2),
    )


@given(
    blocks(),
    st.sampled_from(TopicState),
    st.booleans(),
    st.dictionaries(st.just("segment.ms"), st.integers(1, 1000).map(str)),
)
def test_a_key_reads_back_as_what_was_written(
    spans: tuple[StreamSpan, ...], state: TopicState, grows: bool, configs: dict[str, str]
) -> None:
    made = topic(spans)
    growing = StreamSpan(made.partition_count, 1 << 50, 2) if grows else None
    made = replace(
        made, state=state, growing=growing, configs=configs, settings=settings(configs), version=7
    )
    assert decode(encode(made, change=b"x"), version=7) == made


def test_ten_thousand_partitions_are_a_small_key() -> None:
    assert len(encode(topic((StreamSpan(0, 1, 10_000),)), change=bytes(8))) < 300


def test_what_no_key_can_hold_is_refused() -> None:
    configs = {"leader.replication.throttled.replicas": ",".join(["0:1"] * (1 << 18))}
    with pytest.raises(TooLarge):
        encode(topic((StreamSpan(0, 1, 1),), **configs), change=b"")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"format":1', b'"format":2'),
        (b'"spans":[[0,1,3]]', b'"spans":[]'),
        (b'"spans":[[0,1,3]]', b'"spans":[[1,1,3]]'),
        (b'"spans":[[0,1,3]]', b'"spans":[[0,0,3]]'),
        (b'"spans":[[0,1,3]]', b'"spans":[[0,1,-3]]'),
        (b'"id":"00', b'"id":"'),
        (b'"id":"00', b'"id":"zz'),
        (b'"state":"live"', b'"state":"asleep"'),
        (b'"configs":{}', b'"configs":{"nosuch":"1"}'),
        (b"{", b""),
    ],
)
def test_a_key_that_cannot_be_read_is_corrupt(old: bytes, new: bytes) -> None:
    written = encode(topic((StreamSpan(0, 1, 3),)), change=b"x")
    assert old in written
    with pytest.raises(Corrupt):
        decode(written.replace(old, new, 1), version=1)


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_else_than_read_or_be_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode(data, version=1)
