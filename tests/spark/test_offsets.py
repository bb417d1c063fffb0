"""Offsets in a checkpoint: Kafka's JSON, ids beside it, always in the same order."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.lake.read.read_request import PartitionName
from lakelog.model.failures import Refused
from lakelog.spark.offsets import TOPIC_IDS, Vector, document_of, parse_vector
from lakelog.topics.failures import name_fault

TOPIC_ID = bytes(range(16))
NAMES = st.text("abAB01._-", min_size=1, max_size=5)
VECTORS = st.builds(
    Vector,
    st.dictionaries(
        st.builds(PartitionName, NAMES, st.integers(0, 2**31 - 1)),
        st.integers(0, 2**63 - 1),
        max_size=9,
    ),
    st.dictionaries(NAMES, st.binary(min_size=16, max_size=16), max_size=3),
)


def test_offsets_are_those_of_kafka_and_the_ids_of_topics() -> None:
    offsets = {PartitionName("t", 10): 3, PartitionName("t", 2): 23, PartitionName("a", 0): 7}
    document = document_of(Vector(offsets, {"t": TOPIC_ID}))
    assert json.dumps(document) == (
        '{"a": {"0": 7}, "t": {"2": 23, "10": 3},'
        f' "lakelog:topic-ids": {{"t": "{TOPIC_ID.hex()}"}}}}'
    )


def test_no_topic_can_have_the_name_under_which_the_ids_stand() -> None:
    assert name_fault(TOPIC_IDS) is not None


def test_a_checkpoint_of_spark_s_kafka_source_has_no_ids() -> None:
    found = parse_vector(json.loads('{"b":{"1":5,"0":2},"a":{"0":0}}'))
    assert found == Vector(
        {PartitionName("b", 1): 5, PartitionName("b", 0): 2, PartitionName("a", 0): 0}, {}
    )


@given(VECTORS)
def test_what_is_written_is_read_and_the_same_offsets_are_the_same_text(vector: Vector) -> None:
    text = json.dumps(document_of(vector))
    found = parse_vector(json.loads(text))
    assert found == vector
    backwards = Vector(dict(reversed(list(vector.offsets.items()))), vector.topic_ids)
    assert json.dumps(document_of(backwards)) == text


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "7",
        '{"t": 5}',
        '{"t": {"x": 5}}',
        '{"t": {"-1": 5}}',
        '{"t": {"0": -1}}',
        '{"t": {"0": 1.5}}',
        '{"t": {"0": 9223372036854775808}}',
        '{"t": {"2147483648": 0}}',
        '{"lakelog:topic-ids": {"t": "00"}}',
        '{"lakelog:topic-ids": {"t": 5}}',
        '{"lakelog:topic-ids": 5}',
    ],
)
def test_what_are_no_offsets_is_refused_and_shown(text: str) -> None:
    with pytest.raises(Refused, match="the checkpoint holds"):
        parse_vector(json.loads(text))


def test_a_long_checkpoint_is_not_shown_whole() -> None:
    with pytest.raises(Refused) as caught:
        parse_vector({"t": {str(at): "x" for at in range(1000)}})
    assert len(str(caught.value)) < 500
